"""Pictures and words from traces. No Streamlit: pages, notebooks and files show the same ones."""
