"""Types of the native extension. Each part's C++ bindings add their names here."""
