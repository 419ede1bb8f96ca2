package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"

	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// environmentInfo describes the machine, in the results of initialize and
// environment/info. Paths are file: URIs.
type environmentInfo struct {
	Shell                shellInfo    `json:"shell"`
	ExecutorVersion      string       `json:"executorVersion"`
	ProviderID           string       `json:"providerId"`
	Cwd                  *string      `json:"cwd"`
	UserHomeDir          *string      `json:"userHomeDir"`
	PlatformOS           string       `json:"platformOs"`
	PrependPathDirs      []string     `json:"prependPathDirs"`
	TemporaryDirectories []string     `json:"temporaryDirectories"`
	TempDir              *string      `json:"tempDir"`
	Capabilities         capabilities `json:"capabilities"`

	native *execwirev1.GetEnvironmentResponse
}

// shellInfo is the login shell of the server's user.
type shellInfo struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// capabilities are the optional features of the protocol. They are false for what this
// gateway does not support.
type capabilities struct {
	NetworkProxyLaunch              bool `json:"networkProxyLaunch"`
	NetworkProxyReviewDomains       bool `json:"networkProxyReviewDomains"`
	CredentialMasking               bool `json:"credentialMasking"`
	CredentialMaskingCustom         bool `json:"credentialMaskingCustomProviders"`
	CapabilityDiscoverySandbox      bool `json:"capabilityDiscoverySandbox"`
	FSWatchMissing                  bool `json:"fsWatchMissing"`
	CapabilityDiscoveryV2           bool `json:"capabilityDiscoveryV2"`
	EnvironmentConfigRead           bool `json:"environmentConfigRead"`
	HTTPHeaderEnvVars               bool `json:"httpHeaderEnvVars"`
	SandboxedFileStreaming          bool `json:"sandboxedFileStreaming"`
	FileWriteStreaming              bool `json:"fileWriteStreaming"`
	ShellSnapshotV2                 bool `json:"shellSnapshotV2"`
	WindowsMXC                      bool `json:"windowsMxc"`
	RootWritePreservesDevices       bool `json:"linuxRootWritePreservesDevices"`
	ApprovedRootWritePreservesRules bool `json:"linuxApprovedRootWritePreservesRestrictions"`
}

func newEnvironmentInfo(e *execwirev1.GetEnvironmentResponse) *environmentInfo {
	return &environmentInfo{
		Shell:                shellInfo{Name: path.Base(e.GetShell()), Path: e.GetShell()},
		ExecutorVersion:      e.GetServerVersion(),
		ProviderID:           providerID(e),
		Cwd:                  fileURI(e.GetWorkingDirectory()),
		UserHomeDir:          fileURI(e.GetHomeDirectory()),
		PlatformOS:           e.GetOperatingSystem(),
		PrependPathDirs:      []string{},
		TemporaryDirectories: []string{},
		TempDir:              fileURI(e.GetTemporaryDirectory()),
		Capabilities: capabilities{FileWriteStreaming: true, FSWatchMissing: true,
			SandboxedFileStreaming: slices.Contains(e.GetFeatures(), execwirev1.Feature_FEATURE_SANDBOX)},
		native: e,
	}
}

// providerID identifies the machine: it is stable on one machine and differs between
// machines.
func providerID(e *execwirev1.GetEnvironmentResponse) string {
	sum := sha256.Sum256([]byte(e.GetHostName() + "\x00" + e.GetHomeDirectory()))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// fileURI returns a path as a file: URI, and nil for an empty path.
func fileURI(native string) *string {
	if native == "" {
		return nil
	}
	uri := param.Path{URI: true}.Like(native)
	return &uri
}
