package hub

import "github.com/execwire/execwire/relay/rendezvous"

// openPresence returns what keeps which executors there are.
func (h *Hub) openPresence() (rendezvous.Presence, error) {
	return rendezvous.NewMemory(), nil
}
