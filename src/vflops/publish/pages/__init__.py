"""What all pages share: templates, chart style, label layout."""
