package presence

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
)

// What nodes of a cluster call it and themselves.
const (
	clusterName = "execwire-hub"
	clusterUser = "node"
)

// AddressError is an address of a cluster that cannot be used.
type AddressError struct {
	Address string // as it was given
	Err     error  // what is wrong with it
}

func (e *AddressError) Error() string {
	return fmt.Sprintf("%q is not HOST:PORT of a node: %v", e.Address, e.Err)
}

// Unwrap returns what is wrong.
func (e *AddressError) Unwrap() error { return e.Err }

// join makes a server one of the cluster.
func (c *Cluster) join(settings *server.Options) error {
	host, port, err := splitAddress(c.Listen)
	if err != nil {
		return err
	}
	// A server without a listener for clients takes no routes either. Nobody else
	// knows what opens this one.
	settings.DontListen, settings.Host, settings.Port = false, "127.0.0.1", server.RANDOM_PORT
	settings.Username, settings.Password = clusterUser, rand.Text()
	settings.Cluster = server.ClusterOpts{Name: clusterName, Host: host, Port: port, Username: clusterUser, Password: c.Secret}
	for _, route := range c.Routes {
		if _, _, err := splitAddress(route); err != nil {
			return err
		}
		settings.Routes = append(settings.Routes, &url.URL{Scheme: "nats", Host: route, User: url.UserPassword(clusterUser, c.Secret)})
	}
	return nil
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, &AddressError{Address: address, Err: err}
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 || host == "" {
		return "", 0, &AddressError{Address: address, Err: fmt.Errorf("a host and a port from 1 to 65535 are needed")}
	}
	return host, int(number), nil
}
