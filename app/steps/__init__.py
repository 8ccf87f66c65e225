"""The steps of a request's story that `app.compactor` tells, a file each: view, replay, shape, count, plan and fill, archive, keep."""
