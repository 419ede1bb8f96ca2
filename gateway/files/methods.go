package files

// Method is one method of the protocol.
type Method struct {
	// New returns an empty call.
	New func() Call
	// Control lets it use the permits reserved for requests that end, signal or query.
	Control bool
}

// Methods are the methods about files.
var Methods = map[string]Method{
	"fs/readFile":        {New: newCall[fsReadFileParams]},
	"fs/writeFile":       {New: newCall[fsWriteFileParams]},
	"fs/createDirectory": {New: newCall[fsCreateDirectoryParams]},
	"fs/getMetadata":     {New: newCall[fsGetMetadataParams]},
	"fs/readDirectory":   {New: newCall[fsReadDirectoryParams]},
	"fs/remove":          {New: newCall[fsRemoveParams]},
	"fs/copy":            {New: newCall[fsCopyParams]},
	"fs/canonicalize":    {New: newCall[fsCanonicalizeParams]},
	"fs/open":            {New: newCall[fsOpenParams]},
	"fs/readBlock":       {New: newCall[fsReadBlockParams]},
	"fs/close":           {New: newCall[fsCloseParams], Control: true},
	"fs/walk":            {New: newCall[fsWalkParams]},
	"fs/watchMissing":    {New: newCall[fsWatchMissingParams]},

	"fs/rename":     {New: newCall[fsRenameParams]},
	"fs/writeBlock": {New: newCall[fsWriteBlockParams]},
	"fs/watch":      {New: newCall[fsWatchParams]},
	"fs/unwatch":    {New: newCall[fsUnwatchParams], Control: true},
}

func newCall[P any, C interface {
	*P
	Call
}]() Call {
	return C(new(P))
}
