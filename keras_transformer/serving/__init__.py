"""An HTTP server with the REST interface of TensorFlow Serving (extra `serve`)."""
