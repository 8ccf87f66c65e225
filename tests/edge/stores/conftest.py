from tests.redis_server import redis_behind_sentinel, redis_cluster, redis_server, redis_tls

__all__ = ["redis_behind_sentinel", "redis_cluster", "redis_server", "redis_tls"]
