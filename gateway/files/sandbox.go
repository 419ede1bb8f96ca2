package files

import (
	"encoding/json"

	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/sandboxjson"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// confined are the members of a call that may have a sandbox.
type confined struct {
	Sandbox json.RawMessage `param:"sandbox,optional"`
	Policy  json.RawMessage `param:"sandboxPolicy,optional,named"`

	sandbox
}

// sandbox is what the members mean. The zero value does not restrict.
type sandbox struct {
	policy *execwirev1.SandboxPolicy
	// cwd is a directory that must exist for clients of older versions, or "".
	cwd string
}

func (c *confined) confinement() *confined { return c }

// read parses the sandbox of a call whose paths are URIs or not. It clears Sandbox and
// Policy, which alias the message.
func (c *confined) read(uri bool, cache sandboxCache) (err *jsonrpc.Error) {
	raw, policy := param.Take(&c.Sandbox), param.Take(&c.Policy)
	if !param.IsGiven(raw) && !param.IsGiven(policy) {
		return nil
	}
	known, ok := cache[sandboxKey{uri, string(raw), string(policy)}]
	if !ok {
		if known, err = parseSandbox(uri, raw, policy); err != nil {
			return err
		}
		cache.add(sandboxKey{uri, string(raw), string(policy)}, known)
	}
	c.sandbox = known
	return nil
}

func parseSandbox(uri bool, raw, policy json.RawMessage) (s sandbox, err *jsonrpc.Error) {
	parser := sandboxjson.Parser{URIPaths: uri}
	draft, err := parser.Parse(raw, policy)
	if err != nil {
		return s, err
	}
	if s.policy = draft.ForFiles(); s.policy != nil {
		s.cwd = parser.LegacyCwd()
	}
	return s, nil
}

const (
	// maxCachedSandboxes is the number of sandboxes that a connection caches, and
	// maxCachedSandboxBytes the largest JSON that it caches.
	maxCachedSandboxes    = 4
	maxCachedSandboxBytes = 4 << 10
)

// sandboxCache caches parsed sandboxes. A client sends the same one with every call, and
// parsing it takes longer than the rest of a small call. The result depends on the key
// alone and is immutable. A sandboxCache is for one goroutine.
type sandboxCache map[sandboxKey]sandbox

type sandboxKey struct {
	uri             bool
	sandbox, policy string
}

func (s sandboxCache) add(key sandboxKey, means sandbox) {
	if len(key.sandbox)+len(key.policy) > maxCachedSandboxBytes {
		return
	}
	if len(s) == maxCachedSandboxes {
		clear(s)
	}
	s[key] = means
}
