"""Bodies of requests and answers, with what the OpenAPI page says about them."""
