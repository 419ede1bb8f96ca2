package client

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Sandbox describes common access rights of a process or file call: everything is
// readable, as far as the server's user may. The zero value allows no writes and no
// network. [Sandbox.Policy] builds the message; finer policies are written as messages.
type Sandbox struct {
	// Writable are absolute directories on the server that may be written to. Entries
	// named .git, .agents or .codex in them stay read-only.
	Writable []string
	// Temporary allows writes to /tmp and to TMPDIR of the process's environment.
	Temporary bool
	// Network allows network access.
	Network bool
}

// Policy returns the policy for requests, for example for DirectCommand.Sandbox.
func (s Sandbox) Policy() *execwirev1.SandboxPolicy {
	entries := []*execwirev1.SandboxEntry{special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT, execwirev1.SandboxAccess_SANDBOX_ACCESS_READ)}
	if len(s.Writable) > 0 {
		entries = append(entries, special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS, execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE))
	}
	if s.Temporary {
		entries = append(entries,
			special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_SLASH_TMP, execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE),
			special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_TMPDIR, execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE))
	}
	network := execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED
	if s.Network {
		network = execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
	}
	return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: &execwirev1.ManagedSandbox{
		FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{
			Restricted: &execwirev1.RestrictedFileSystem{Entries: entries},
		}},
		Network:        network,
		WorkspaceRoots: s.Writable,
	}}}
}

func special(kind execwirev1.SpecialPathKind, access execwirev1.SandboxAccess) *execwirev1.SandboxEntry {
	return &execwirev1.SandboxEntry{
		Place:  &execwirev1.SandboxEntry_Special{Special: &execwirev1.SpecialPath{Kind: kind}},
		Access: access,
	}
}

// errPreparedConfined rejects a prepared command in a client with a sandbox.
var errPreparedConfined = status.Error(codes.InvalidArgument, "a prepared command carries no sandbox, and this client has one: start it as a direct command, or with a client without a sandbox")

// WithSandbox returns a client of the same server that adds policy to every process and
// file request without a policy of its own. Prepared commands, which carry no policy,
// fail. It never blocks. Closing the returned client does nothing; it must not be used
// after c is closed.
func (c *Client) WithSandbox(policy *execwirev1.SandboxPolicy) *Client {
	return newClient(lifetimeConn{ClientConnInterface: c.channel.ClientConnInterface, life: c.life, policy: proto.CloneOf(policy)}, nil)
}

// confine returns a request with the policy, if it can carry one and has none. It does
// not change the caller's request. A nil policy changes nothing.
func confine(policy *execwirev1.SandboxPolicy, m any) (any, error) {
	request, ok := m.(proto.Message)
	if !ok || policy == nil {
		return m, nil
	}
	with, err := confineMessage(policy.ProtoReflect(), request.ProtoReflect())
	if err != nil {
		return nil, err
	}
	return with.Interface(), nil
}

// confineMessage adds the policy to a message, or to its parts.
func confineMessage(policy, m protoreflect.Message) (protoreflect.Message, error) {
	if command, ok := m.Interface().(*execwirev1.ProcessCommand); ok && command.GetPrepared() != nil {
		return nil, errPreparedConfined
	}
	changed := map[protoreflect.FieldDescriptor]protoreflect.Message{}
	for i := range m.Descriptor().Fields().Len() {
		field := m.Descriptor().Fields().Get(i)
		switch {
		case field.Message() == nil || field.IsList() || field.IsMap():
		case field.Message() == policy.Descriptor():
			if !m.Has(field) {
				changed[field] = policy
			}
		case m.Has(field):
			part, err := confineMessage(policy, m.Get(field).Message())
			if err != nil {
				return nil, err
			}
			if part != m.Get(field).Message() {
				changed[field] = part
			}
		}
	}
	if len(changed) == 0 {
		return m, nil
	}
	with := m.New()
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		with.Set(field, value)
		return true
	})
	for field, part := range changed {
		with.Set(field, protoreflect.ValueOfMessage(part))
	}
	return with, nil
}
