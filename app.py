"""The app's entry: page settings, language, navigation. Start it with ``streamlit run app.py``."""

import streamlit as st

from app_pages import race, ring, scaling, traffic
from app_pages.language import choose_language
from views.player import source_text

st.set_page_config(page_title="SyncScope", layout="wide")
st.html(f"<style>{source_text('page.css')}</style>")
text = choose_language()
pages = [
    st.Page(lambda: race.show(text), title=text("page.race"), url_path="race", default=True),
    st.Page(lambda: ring.show(text), title=text("page.ring"), url_path="ring"),
    st.Page(lambda: traffic.show(text), title=text("page.traffic"), url_path="traffic"),
    st.Page(lambda: scaling.show(text), title=text("page.scaling"), url_path="scaling"),
]
st.navigation(pages).run()
