"""The web-platform-tests of WebNN as data (``../shared/wpt``): conformance vectors and recorded calls."""
