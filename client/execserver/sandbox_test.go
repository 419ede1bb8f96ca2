package execserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testrace"
)

const (
	restrictedNetwork = execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED
	projectRoots      = execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS
)

// randomPolicy is a policy that is well formed.
func randomPolicy(r *rand.Rand) *execwirev1.SandboxPolicy {
	network := execwirev1.NetworkAccess(r.IntN(3))
	switch r.IntN(10) {
	case 0:
		return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Disabled{Disabled: &execwirev1.DisabledSandbox{}}}
	case 1:
		return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_External{External: &execwirev1.ExternalSandbox{Network: network}}}
	}
	managed := &execwirev1.ManagedSandbox{Network: network}
	if r.IntN(8) == 0 {
		managed.FileSystem = &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Unrestricted{Unrestricted: &execwirev1.UnrestrictedFileSystem{}}}
	} else {
		restricted := &execwirev1.RestrictedFileSystem{}
		for range r.IntN(6) {
			restricted.Entries = append(restricted.Entries, randomEntry(r))
		}
		managed.FileSystem = &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{Restricted: restricted}}
	}
	for range r.IntN(3) {
		managed.WorkspaceRoots = append(managed.WorkspaceRoots, randomPlace(r))
	}
	return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: managed}}
}

func randomPlace(r *rand.Rand) string {
	names := []string{"a", "ü %41#?", "{b,c}", `back\slash`, "d e", "[f]"}
	return "/" + names[r.IntN(len(names))] + "/" + names[r.IntN(len(names))]
}

func randomEntry(r *rand.Rand) *execwirev1.SandboxEntry {
	entry := &execwirev1.SandboxEntry{Access: execwirev1.SandboxAccess(1 + r.IntN(3)), MissingPathBehavior: execwirev1.MissingPathBehavior(r.IntN(2))}
	switch r.IntN(3) {
	case 0:
		special := &execwirev1.SpecialPath{Kind: execwirev1.SpecialPathKind(1 + r.IntN(5))}
		if special.GetKind() == projectRoots && r.IntN(2) == 0 {
			special.SubPath = "below/it"
		}
		entry.Place = &execwirev1.SandboxEntry_Special{Special: special}
	default:
		entry.Place = &execwirev1.SandboxEntry_Path{Path: randomPlace(r)}
	}
	return entry
}

// meant is what a policy means, as a gateway writes it; nil confines nothing.
func meant(policy *execwirev1.SandboxPolicy, ofFiles bool) *execwirev1.SandboxPolicy {
	policy = proto.CloneOf(policy)
	managed := policy.GetManaged()
	unrestricted := managed.GetFileSystem().GetUnrestricted() != nil
	switch {
	case policy.GetDisabled() != nil, ofFiles && (managed == nil || unrestricted),
		unrestricted && managed.GetNetwork() == execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED:
		return nil
	case policy.GetExternal() != nil:
		if policy.GetExternal().GetNetwork() == 0 {
			policy.GetExternal().Network = restrictedNetwork
		}
		return policy
	}
	if ofFiles || managed.GetNetwork() == 0 {
		managed.Network = restrictedNetwork
	}
	if unrestricted {
		managed.WorkspaceRoots = nil
		return policy
	}
	restricted := managed.GetFileSystem().GetRestricted()
	var entries []*execwirev1.SandboxEntry
	hasRoots := false
	for _, entry := range restricted.GetEntries() {
		isRoots := entry.GetSpecial().GetKind() == projectRoots
		if isRoots && len(managed.GetWorkspaceRoots()) == 0 {
			continue
		}
		hasRoots = hasRoots || isRoots
		entries = append(entries, entry)
	}
	restricted.Entries = entries
	if !hasRoots {
		managed.WorkspaceRoots = nil
	}
	return policy
}

// TestSandbox_RandomPolicies_ArriveUnchanged has random policies come to a core as they
// were given, of processes and of files, or be refused before they do.
func TestSandbox_RandomPolicies_ArriveUnchanged(t *testing.T) {
	testrace.WithoutRace(t)
	eachReference(t, func(t *testing.T, s *gatewayServer, files *Conn, newer bool) {
		var seen []*execwirev1.SandboxPolicy
		see := grpc.UnaryServerInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
			switch request := request.(type) {
			case *execwirev1.StartProcessRequest:
				seen = append(seen, request.GetCommand().GetDirect().GetSandbox())
			case *execwirev1.CreateDirectoryRequest:
				seen = append(seen, request.GetSandbox())
			case *execwirev1.GetEnvironmentRequest: // as if it could enforce them
				response, err := serve(ctx, request)
				if said, ok := response.(*execwirev1.GetEnvironmentResponse); ok {
					said = proto.CloneOf(said)
					said.Features = append(said.Features, execwirev1.Feature_FEATURE_SANDBOX)
					response = said
				}
				return response, err
			default:
				return serve(ctx, request)
			}
			return nil, status.Error(codes.Aborted, "it was seen")
		})
		s.intercept.Store(&see)
		processes := dial(t, s.address)
		r := rand.New(rand.NewPCG(1, 2))
		refused, parent := 0, t.TempDir()
		for i := range 300 {
			policy := randomPolicy(r)
			if roots := policy.GetManaged().GetWorkspaceRoots(); len(roots) == 1 {
				roots[0] = parent // older servers want it to exist
			}
			for _, ofFiles := range []bool{false, true} {
				if !ofFiles && !newer {
					continue // older servers confine no processes
				}
				seen = nil
				var err error
				if ofFiles {
					_, err = execwirev1.NewFileSystemServiceClient(files).CreateDirectory(t.Context(),
						&execwirev1.CreateDirectoryRequest{Path: path.Join(parent, fmt.Sprint(i)), Sandbox: policy})
				} else {
					request := program(fmt.Sprint("p", i), "true")
					request.GetCommand().GetDirect().Sandbox = policy
					_, err = start(t, processes, request)
				}
				if len(seen) == 0 {
					roots := len(policy.GetManaged().GetWorkspaceRoots())
					if refused++; err == nil || newer || roots < 2 {
						t.Fatalf("%v did not come to the core, and is %v", policy, err)
					}
					continue
				}
				got, want := seen[0], meant(policy, ofFiles)
				if got.GetDisabled() != nil {
					got = nil
				}
				if !proto.Equal(got, want) {
					t.Fatalf("of files: %v\n%v\ncame as\n%v\nand means\n%v", ofFiles, policy, got, want)
				}
			}
		}
		if (refused > 0) == newer {
			t.Errorf("%d were refused", refused)
		}
	})
}
