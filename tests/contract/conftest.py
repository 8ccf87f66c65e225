from tests.redis_server import redis_behind_sentinel, redis_cluster, redis_image, redis_server

__all__ = ["redis_behind_sentinel", "redis_cluster", "redis_image", "redis_server"]
