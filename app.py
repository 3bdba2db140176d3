"""The app's entry: page settings, language, navigation. Start it with ``streamlit run app.py``."""

import streamlit as st

from app_pages import measured, race, ring, scaling, staleness, step, traffic, whatif
from app_pages.language import choose_language, settle_language
from app_pages.share import share_bar
from views.player import source_text

st.set_page_config(page_title="SyncScope", layout="wide")
st.html(f"<style>{source_text('page.css')}</style>")
text = choose_language()
first = st.Page(lambda: race.show(text), title=text("page.race"), url_path="", default=True)
# The first page is at the root; under its own name, as the others are, it leads there.
named = st.Page(lambda: None, title=text("page.race"), url_path="race", visibility="hidden")
pages = [
    first,
    named,
    st.Page(lambda: ring.show(text), title=text("page.ring"), url_path="ring"),
    st.Page(lambda: traffic.show(text), title=text("page.traffic"), url_path="traffic"),
    st.Page(lambda: scaling.show(text), title=text("page.scaling"), url_path="scaling"),
    st.Page(lambda: whatif.show(text), title=text("page.whatif"), url_path="whatif"),
    st.Page(lambda: step.show(text), title=text("page.step"), url_path="step"),
    st.Page(lambda: staleness.show(text), title=text("page.staleness"), url_path="staleness"),
    st.Page(lambda: measured.show(text), title=text("page.measured"), url_path="measured"),
]
here = st.navigation(pages)
settle_language()
if here == named:
    asked = {key: st.query_params.get_all(key) for key in st.query_params}
    st.switch_page(first, query_params=asked)
share_bar(text)
here.run()
