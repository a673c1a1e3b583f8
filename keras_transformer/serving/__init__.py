"""An HTTP server with the interfaces of TensorFlow Serving and LibreTranslate (extra `serve`)."""
