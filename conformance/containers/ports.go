package containers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"

	"github.com/moby/moby/api/types/network"
)

// Ports are taken from below the range that the kernel hands out by itself, so that no outgoing connection can take the
// port of a server while that is down.
const lowestPort, highestPort = 20000, 30000

// freePorts chooses ports that nobody listens on. Another process may still be faster: the caller tries again.
func freePorts(ctx context.Context, count int) ([]int, error) {
	var ports []int
	for tries := 0; len(ports) < count; tries++ {
		if tries == 1000 {
			return nil, fmt.Errorf("containers: no %d free ports between %d and %d", count, lowestPort, highestPort)
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", loopback(port))
		if err != nil {
			continue
		}
		_ = listener.Close()
		ports = append(ports, port)
	}
	return ports, nil
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// publish maps each port to the same number on loopback: what a server announces is then valid inside and outside of
// its container, and stays valid when it is restarted.
func publish(ports []int) (exposed []string, bindings network.PortMap) {
	bindings = network.PortMap{}
	for _, port := range ports {
		name := strconv.Itoa(port) + "/tcp"
		exposed = append(exposed, name)
		bindings[network.MustParsePort(name)] = []network.PortBinding{
			{HostIP: netip.AddrFrom4([4]byte{127, 0, 0, 1}), HostPort: strconv.Itoa(port)},
		}
	}
	return exposed, bindings
}
