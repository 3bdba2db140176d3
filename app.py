"""The app's entry: page settings, language, navigation. Start it with ``streamlit run app.py``."""

import streamlit as st

from app_pages import race
from app_pages.language import choose_language
from views.player import source_text

st.set_page_config(page_title="SyncScope", layout="wide")
st.html(f"<style>{source_text('page.css')}</style>")
text = choose_language()
pages = [
    st.Page(lambda: race.show(text), title=text("page.race"), url_path="race", default=True),
]
st.navigation(pages).run()
