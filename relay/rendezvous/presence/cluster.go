package presence

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
)

// Names within the cluster.
const (
	clusterName = "execwire-hub"
	clusterUser = "node"
)

// join configures a server as a member of the cluster.
func (c *Cluster) join(settings *server.Options) error {
	host, port, err := splitAddress(c.Listen)
	if err != nil {
		return err
	}
	// A server without a listener for clients accepts no routes either. The
	// random password keeps clients out.
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
		return "", 0, fmt.Errorf("%q is not the HOST:PORT of a node: %w", address, err)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 || host == "" {
		return "", 0, fmt.Errorf("%q is not the HOST:PORT of a node: it needs a host and a port from 1 to 65535", address)
	}
	return host, int(number), nil
}
