package hub

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/relay/rendezvous"
	"github.com/execwire/execwire/relay/rendezvous/presence"
)

// openPresence returns what keeps which executors there are.
func (h *Hub) openPresence(ctx context.Context) (rendezvous.Presence, error) {
	if h.cfg.Presence == config.PresenceMemory {
		return rendezvous.NewMemory(), nil
	}
	options := presence.Options{Node: h.cfg.Node, Directory: h.cfg.PresenceDirectory}
	if h.cfg.ClusterListen != "" {
		options.Cluster = &presence.Cluster{Listen: h.cfg.ClusterListen, Routes: h.cfg.ClusterRoutes, Secret: h.clusterSecret()}
	}
	return presence.Open(ctx, options)
}

// clusterSecret is what nodes show each other. It is made of the secret that all
// of them have, and does not tell it.
func (h *Hub) clusterSecret() string {
	mac := hmac.New(sha256.New, h.urlKey)
	mac.Write([]byte("execwire hub cluster"))
	return hex.EncodeToString(mac.Sum(nil))
}
