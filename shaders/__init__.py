"""Jinja templates of GLSL; nothing else lives here."""
