// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/kubedevice/kubedevice/"

// modules is the directory that npm puts the modules of others into.
const modules = "node_modules"

// source is one Go file of the repository.
type source struct {
	path string // from the repository's root, with slashes
	file *ast.File
}

func (s source) directory() string { return path.Dir(s.path) }
func (s source) test() bool        { return strings.HasSuffix(s.path, "_test.go") }

func sources(t *testing.T) []source {
	t.Helper()
	root, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	var found []source
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if base := entry.Name(); base == "_output" || base == "testdata" || base == ".git" || base == modules {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		found = append(found, source{filepath.ToSlash(relative), file})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 50 {
		t.Fatalf("found %d Go files below %s: not the repository?", len(found), root)
	}
	return found
}

// mayImport lists, for a directory and what is below it, the directories of the repository its code
// may import; the longest match counts. Tests may import more.
var mayImport = map[string][]string{
	"cmd/kube-scheduler": {"pkg/scheduler", "pkg/pluginload", "pkg/trim"},
	"cmd/kubecri":        {"pkg/node", "pkg/pluginload"},
	"pkg/sdk":            {"pkg/sdk"},
	"pkg/cache":          {},
	"pkg/grouptree":      {"pkg/sdk"},
	"pkg/deviceinfo":     {"pkg/sdk"},
	"pkg/seal":           {"pkg/sdk"},
	"pkg/pluginload":     {"pkg/sdk"},
	"pkg/plugincall":     {}, // it knows nothing of devices
	"pkg/kubeletdevice":  {"pkg/sdk"},
	"pkg/trim":           {},
	"pkg/logkey":         {},
	addresses:            {},
	"pkg/statetest":      {}, // for tests alone
	truncation:           {},
	"pkg/request":        {"pkg/cache", "pkg/deviceinfo", "pkg/grouptree", "pkg/kubeletdevice", "pkg/sdk"},
	"cmd/kubectl-device": {"pkg/kubectl"},
	"pkg/schedulerapi":   {}, // types alone
	"pkg/kubectl": {
		"pkg/kubectl", "pkg/deviceinfo", "pkg/grouptree", "pkg/kubeletdevice", "pkg/request",
		"pkg/schedulerapi", "pkg/sdk", "pkg/seal/keycommand", "deploy",
	},
	"pkg/seal/keycommand":   {"pkg/seal"},
	"pkg/kubectl/columns":   {}, // it knows nothing of devices
	"pkg/kubectl/cluster":   {"pkg/deviceinfo", "pkg/sdk"},
	"pkg/kubectl/bundle":    {"pkg/kubectl/cluster", "pkg/kubectl/devices", "pkg/deviceinfo", "pkg/schedulerapi"},
	"pkg/kubectl/scheduler": {"pkg/kubectl/cluster", "pkg/schedulerapi"},
	"pkg/kubectl/devices":   {"pkg/deviceinfo", "pkg/grouptree", "pkg/kubeletdevice", "pkg/request", "pkg/sdk"},
	"pkg/kubectl/lint": {
		"pkg/kubectl/devices", "pkg/deviceinfo", "pkg/grouptree", "pkg/kubeletdevice", "pkg/request", "pkg/sdk",
	},
	"pkg/kubectl/web": {"pkg/kubectl/cluster", "pkg/kubectl/devices", "pkg/schedulerapi"},
	"pkg/scheduler": {
		"pkg/scheduler", "pkg/cache", "pkg/deviceinfo", "pkg/grouptree", "pkg/kubeletdevice",
		"pkg/plugincall", "pkg/pluginload", "pkg/request", "pkg/schedulerapi", "pkg/seal", "pkg/sdk",
	},
	"pkg/scheduler/pluginhost": {"pkg/plugincall", "pkg/request", "pkg/sdk"},
	"pkg/scheduler/allocation": {
		"pkg/scheduler/pluginhost", "pkg/cache", "pkg/deviceinfo", "pkg/grouptree", "pkg/pluginload", "pkg/request",
		"pkg/sdk",
	},
	"pkg/scheduler/kubeletplugin": {
		"pkg/scheduler/allocation", "pkg/request", "pkg/deviceinfo", "pkg/grouptree", "pkg/kubeletdevice", "pkg/sdk",
	},
	"pkg/scheduler/apiserver": {},
	"pkg/scheduler/metrics":   {"pkg/scheduler/allocation", "pkg/scheduler/pluginhost", "pkg/cache"},
	"pkg/scheduler/nodestate": {
		"pkg/scheduler/allocation", "pkg/scheduler/pluginhost", "pkg/cache", "pkg/deviceinfo", "pkg/grouptree",
		"pkg/kubeletdevice", "pkg/request", "pkg/seal", "pkg/sdk",
	},
	"pkg/scheduler/frameworkplugin": {
		"pkg/scheduler/allocation", "pkg/scheduler/ledger", "pkg/scheduler/metrics", "pkg/scheduler/nodestate",
		"pkg/scheduler/pluginhost", "pkg/scheduler/verdict", "pkg/cache", "pkg/deviceinfo", "pkg/grouptree",
		"pkg/request", "pkg/seal", "pkg/sdk",
	},
	"pkg/scheduler/config": {
		"pkg/scheduler/allocation", "pkg/scheduler/claims", "pkg/scheduler/frameworkplugin", "pkg/schedulerapi",
		"pkg/seal",
	},
	"pkg/scheduler/ledger":           {"pkg/deviceinfo", "pkg/kubeletdevice", "pkg/sdk"},
	"pkg/scheduler/claims":           {"pkg/scheduler/claims", "pkg/scheduler/ledger", "pkg/scheduler/metrics"},
	"pkg/scheduler/claims/pool":      {},
	"pkg/scheduler/claims/selector":  {"pkg/cache"},
	"pkg/scheduler/claims/allocator": {"pkg/scheduler/claims/pool", "pkg/scheduler/claims/selector"},
	"pkg/scheduler/verdict": {
		"pkg/scheduler/allocation", "pkg/scheduler/metrics", "pkg/scheduler/nodestate", "pkg/request",
	},
	"pkg/scheduler/readapi": {
		"pkg/scheduler/allocation", "pkg/scheduler/nodestate", "pkg/cache", "pkg/deviceinfo", "pkg/kubeletdevice",
		"pkg/request", "pkg/schedulerapi", "pkg/sdk",
	},
	"pkg/scheduler/whatif": {
		"pkg/scheduler/allocation", "pkg/scheduler/claims", "pkg/scheduler/config", "pkg/scheduler/frameworkplugin",
		"pkg/scheduler/ledger", "pkg/scheduler/nodestate", "pkg/deviceinfo", "pkg/request", "pkg/schedulerapi",
		"pkg/sdk",
	},
	"pkg/scheduler/failover": {
		"pkg/scheduler/allocation", "pkg/scheduler/metrics", "pkg/scheduler/nodestate", "pkg/deviceinfo",
		"pkg/grouptree", "pkg/request", "pkg/seal", "pkg/sdk",
	},
	"pkg/scheduler/policies": {"deploy", "pkg/scheduler/metrics"},
	"deploy":                 {}, // data only
	"pkg/node": {
		"pkg/node", "pkg/cache", "pkg/deviceinfo", "pkg/grouptree", "pkg/kubeletdevice", "pkg/plugincall",
		"pkg/pluginload", "pkg/request", "pkg/seal", "pkg/sdk", "pkg/trim",
	},
	"pkg/node/app": {
		"pkg/node", "pkg/cache", "pkg/deviceinfo", "pkg/grouptree", "pkg/kubeletdevice", "pkg/pluginload", "pkg/seal",
		"pkg/sdk", "pkg/trim", "deploy",
	},
	"plugins": {"plugins", "pkg/sdk"},
	"hack":    {},
	"test":    {"test", "pkg", "cmd", "plugins", "deploy"},
}

func within(path, directory string) bool {
	return path == directory || strings.HasPrefix(path, directory+"/")
}

// logKeys is the package of the keys of log messages.
const logKeys = "pkg/logkey"

// addresses is the package of the documents' address, which all others may import.
const addresses = "pkg/documents"

// truncation is the package that truncates text, which all others may import.
const truncation = "pkg/truncate"

// logsIn are the directories whose code logs with these keys: all that the two programs are made of
// and plugins are not.
var logsIn = []string{
	"cmd/kube-scheduler", "cmd/kubecri", "pkg/node", "pkg/plugincall", "pkg/pluginload", "pkg/scheduler",
}

func logs(s source) bool {
	return !s.test() && slices.ContainsFunc(logsIn, func(directory string) bool {
		return within(s.directory(), directory)
	})
}

// importRule returns the entry of mayImport for a directory.
func importRule(directory string) (name string, allowed []string, ok bool) {
	for candidate, list := range mayImport {
		if within(directory, candidate) && len(candidate) >= len(name) {
			name, allowed, ok = candidate, list, true
		}
	}
	return name, allowed, ok
}

func TestImportsPointOneWay(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		name, allowed, ok := importRule(s.directory())
		if !ok {
			t.Errorf("%s: its directory has no rule for its imports; add one to mayImport", s.path)
			continue
		}
	imports:
		for _, spec := range s.file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			target, ours := strings.CutPrefix(imported, module)
			if !ours {
				if name == "pkg/sdk" && strings.Contains(strings.Split(imported, "/")[0], ".") {
					t.Errorf("%s imports %s: the SDK uses the standard library only", s.path, imported)
				}
				if name == "pkg/grouptree" && strings.Contains(imported, "k8s.io/") {
					t.Errorf("%s imports %s: placement must not know Kubernetes", s.path, imported)
				}
				continue
			}
			if target == logKeys && logs(s) {
				continue
			}
			if target == addresses || target == truncation {
				continue
			}
			for _, directory := range allowed {
				if within(target, directory) {
					continue imports
				}
			}
			if !within(target, s.directory()) {
				t.Errorf("%s imports %s: code of %s may import only %v", s.path, target, name, allowed)
			}
		}
	}
}

// firstKey is the index of the first key among the arguments of klog's functions and methods.
var firstKey = map[string]int{
	"Info": 1, "InfoS": 1, "Error": 2, "ErrorS": 2, "WithValues": 0, "LoggerWithValues": 1,
}

func TestLogKeysAreConstants(t *testing.T) {
	keys := 0
	for _, s := range sources(t) {
		if !logs(s) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			function, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			first, ok := firstKey[function.Sel.Name]
			for i := first; ok && i+1 < len(call.Args); i += 2 {
				switch key := call.Args[i].(type) {
				case *ast.BasicLit:
					t.Errorf("%s logs with the key %s: take or add a constant of %s", s.path, key.Value, logKeys)
				case *ast.SelectorExpr:
					if from, ok := key.X.(*ast.Ident); ok && from.Name == path.Base(logKeys) {
						keys++
					}
				}
			}
			return true
		})
	}
	if keys == 0 {
		t.Error("no key of any log message was found: this test looks for the wrong calls")
	}
}

// Who reads a message may have no directory docs.
func TestMessagesNameDocumentsByTheirAddress(t *testing.T) {
	named := regexp.MustCompile(`\bdocs/[\w/-]+\.md`)
	for _, s := range sources(t) {
		if s.test() || !within(s.directory(), "pkg") && !within(s.directory(), "cmd") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING && named.MatchString(text.Value) {
				t.Errorf("%s: %s: begin the path with documents.URL", s.path, text.Value)
			}
			return true
		})
	}
}

func TestEveryPackageHasAComment(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		documented[s.directory()] = documented[s.directory()] || s.file.Doc != nil
	}
	for directory, has := range documented {
		if !has {
			t.Errorf("%s has no package comment", directory)
		}
	}
}

func TestEveryFileHasTheLicenceHeader(t *testing.T) {
	const header = "// Copyright The KubeDevice Authors.\n// SPDX-License-Identifier: Apache-2.0\n\n"
	for _, s := range sources(t) {
		content, err := os.ReadFile(filepath.Join("../..", s.path))
		if err != nil {
			t.Fatal(err)
		}
		text := string(content)
		if strings.HasPrefix(text, "//go:build") {
			_, text, _ = strings.Cut(text, "\n\n")
		}
		if !strings.HasPrefix(text, header) {
			t.Errorf("%s does not begin with the licence header", s.path)
		}
	}
}
