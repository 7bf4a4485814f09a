package containers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

const (
	// probeTimeout bounds each question to the engine or, through it, to a registry.
	probeTimeout = 5 * time.Second

	// runLabel is on every container with the value of runEnv, so that who has set it finds those that a test process
	// left behind.
	runLabel = "anylock.test.run"
	runEnv   = "ANYLOCK_TEST_RUN"

	// reaperImage is what testcontainers v0.45 uses to remove the containers of a test binary that crashed.
	reaperImage = "testcontainers/ryuk:0.14.0"
)

// unavailableError says why a server cannot be had here, and what to do about it.
type unavailableError struct{ advice string }

func (e unavailableError) Error() string { return e.advice }

func unavailable(format string, args ...any) error {
	return unavailableError{fmt.Sprintf(format, args...)}
}

// engine returns the client of the local container engine. The first call prepares testcontainers for it.
var engine = sync.OnceValues(connectEngine)

// engineClient is what engine has returned, nil before.
var engineClient atomic.Pointer[client.Client]

// closeEngine closes idle connections to the engine, which would look like a leak to those who count goroutines.
func closeEngine() error {
	if docker := engineClient.Load(); docker != nil {
		return docker.Close()
	}
	return nil
}

func connectEngine() (*client.Client, error) {
	if err := checkEngineIsLocal(os.Getenv("DOCKER_HOST")); err != nil {
		return nil, err
	}

	log.SetDefault(log.NewNoopLogger())
	// Servers are published on this machine's loopback interface. Left alone, testcontainers looks for them on the
	// gateway when it runs inside a container, even if the engine runs in there as well.
	setenvDefault("TESTCONTAINERS_HOST_OVERRIDE", "localhost")

	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	// Not testcontainers' own client: making that one reads the settings that are still to be decided below.
	docker, err := client.New(client.FromEnv)
	if err == nil {
		_, err = docker.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	}
	if err != nil {
		return nil, unavailable("no container engine answers (%v); install one (on Debian: apt-get install docker.io)"+
			" and run `make images`", err)
	}

	if !imagePresent(docker, reaperImage) && !registryHas(docker, reaperImage) {
		setenvDefault("TESTCONTAINERS_RYUK_DISABLED", "true")
	}
	engineClient.Store(docker)
	return docker, nil
}

// checkEngineIsLocal refuses an engine on another machine: what it publishes on loopback is out of reach.
func checkEngineIsLocal(dockerHost string) error {
	u, err := url.Parse(dockerHost)
	if err != nil {
		return unavailable("DOCKER_HOST is not a URL: %v", err)
	}
	switch u.Hostname() {
	case "", "localhost", "127.0.0.1", "::1":
		return nil
	}
	return unavailable("the container engine at %s is not on this machine; give the addresses of servers in the"+
		" environment instead", u.Host)
}

func setenvDefault(key, value string) {
	if _, set := os.LookupEnv(key); !set {
		_ = os.Setenv(key, value) // fails for malformed keys only
	}
}

func imagePresent(docker *client.Client, name string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	_, err := docker.ImageInspect(ctx, name)
	return err == nil
}

// registryHas asks for the manifest only, so that the answer is quick whatever the size of the image.
func registryHas(docker *client.Client, name string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	_, err := docker.DistributionInspect(ctx, name, client.DistributionInspectOptions{})
	return err == nil
}

// image names a server's image: one built by `make images`, or the official one.
type image struct{ local, official string }

// choose returns the image to start: the local tag, or the official image if it is here or can be pulled.
func (i image) choose(docker *client.Client) (string, error) {
	switch {
	case imagePresent(docker, i.local):
		return i.local, nil
	case imagePresent(docker, i.official), registryHas(docker, i.official):
		return i.official, nil
	}
	return "", unavailable("no image %s or %s; run `make images`", i.local, i.official)
}

// run starts a container. On an error nothing of it is left.
func run(ctx context.Context, request testcontainers.ContainerRequest) (testcontainers.Container, error) {
	if id := os.Getenv(runEnv); id != "" {
		request.Labels = map[string]string{runLabel: id}
	}
	container, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{
		ContainerRequest: request,
		Started:          true,
		Logger:           log.NewNoopLogger(),
	})
	if err != nil {
		return nil, errors.Join(err, remove(container))
	}
	return container, nil
}

// remove ends a container at once, without giving it time to save anything.
func remove(container testcontainers.Container) error {
	return testcontainers.TerminateContainer(container, testcontainers.StopTimeout(0))
}
