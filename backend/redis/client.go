package redis

import (
	"reflect"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
)

// checkClient looks whether locks are safe with a client, also with one inside a type of the user's own.
func checkClient(client redis.UniversalClient) error {
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return anylock.Invalidf("the Redis client is nil")
	}
	var found clientKinds
	found.look(reflect.ValueOf(client), 0)
	switch {
	case found.ring:
		return anylock.Invalidf("a redis.Ring cannot keep locks: it moves keys to another shard when one fails, " +
			"and then a lock has two owners; use a Client or a ClusterClient")
	case !found.known:
		return anylock.Invalidf("a client of type %T is not known to keep a key at one server: there is no redis.Client and no "+
			"redis.ClusterClient in it; give one of these to New", client)
	}
	return nil
}

// clientKinds are the clients of go-redis that were found.
type clientKinds struct{ ring, known bool }

func (k *clientKinds) look(v reflect.Value, depth int) {
	const deepest = 6
	if !v.IsValid() || depth > deepest {
		return
	}
	switch v.Type() {
	case reflect.TypeFor[*redis.Ring]():
		k.ring = k.ring || !v.IsNil()
		return
	case reflect.TypeFor[*redis.Client](), reflect.TypeFor[*redis.ClusterClient]():
		k.known = k.known || !v.IsNil()
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		k.look(v.Elem(), depth+1)
	case reflect.Struct:
		for _, field := range v.Fields() {
			k.look(field, depth+1)
		}
	}
}
