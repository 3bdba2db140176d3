"""The app's entry: page settings, language, navigation. Start it with ``streamlit run app.py``."""

import streamlit as st

from app_pages import measured, race, ring, scaling, staleness, step, traffic, whatif
from app_pages.language import choose_language
from app_pages.share import share_bar
from views.player import source_text

st.set_page_config(page_title="SyncScope", layout="wide")
st.html(f"<style>{source_text('page.css')}</style>")
text = choose_language()
share_bar(text)
pages = [
    st.Page(lambda: race.show(text), title=text("page.race"), url_path="race", default=True),
    st.Page(lambda: ring.show(text), title=text("page.ring"), url_path="ring"),
    st.Page(lambda: traffic.show(text), title=text("page.traffic"), url_path="traffic"),
    st.Page(lambda: scaling.show(text), title=text("page.scaling"), url_path="scaling"),
    st.Page(lambda: whatif.show(text), title=text("page.whatif"), url_path="whatif"),
    st.Page(lambda: step.show(text), title=text("page.step"), url_path="step"),
    st.Page(lambda: staleness.show(text), title=text("page.staleness"), url_path="staleness"),
    st.Page(lambda: measured.show(text), title=text("page.measured"), url_path="measured"),
]
st.navigation(pages).run()
