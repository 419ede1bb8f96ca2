package client

import execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"

// HTTP returns the generated stub of the HTTP service, which makes requests from
// where the server is. Its errors are those of Processes.
func (c *Client) HTTP() execwirev1.HttpServiceClient {
	return execwirev1.NewHttpServiceClient(c.channel)
}
