"""What each part of the page does on the server. No Gradio here: plain values in, JSON lines out."""
