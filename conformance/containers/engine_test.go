package containers

import (
	"errors"
	"testing"
)

func TestEngineElsewhereIsRefused(t *testing.T) {
	for host, local := range map[string]bool{
		"":                            true,
		"unix:///var/run/docker.sock": true,
		"tcp://127.0.0.1:2375":        true,
		"tcp://localhost:2375":        true,
		"tcp://build.example:2376":    false,
		"ssh://me@build.example":      false,
	} {
		err := checkEngineIsLocal(host)
		if missing := (unavailableError{}); errors.As(err, &missing) == local {
			t.Errorf("DOCKER_HOST=%s: %v, want local: %t", host, err, local)
		}
	}
}
