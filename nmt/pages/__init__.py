"""Pages and pictures: templates, charts, and numbers as people read them."""
