"""The web-platform-tests of WebNN as data (``../shared/wpt``): vectors and recorded calls."""
