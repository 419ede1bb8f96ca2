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

// openPresence opens the configured presence.
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

// clusterSecret derives the secret of the cluster from the URL key, without
// revealing the key.
func (h *Hub) clusterSecret() string {
	mac := hmac.New(sha256.New, h.urlKey)
	mac.Write([]byte("execwire hub cluster"))
	return hex.EncodeToString(mac.Sum(nil))
}
