"""The page: everything the browser sees. It is fed with events and knows nothing of tensors."""
