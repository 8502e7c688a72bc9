//! Pure decisions: which site needs a node, who gives one, which server takes a request.
