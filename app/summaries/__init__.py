"""What stands in a recap: the template, and the summariser that needs no model. Pure: works on what `app.core.transcript` shows of
items."""
