// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRejectsFilesThatOthersMayChange has each way in which another user could change the content
// of a plugin file. Each attempt starts from an accepted file.
func TestRejectsFilesThatOthersMayChange(t *testing.T) {
	noUser := func(uint32) bool { return false }
	mode := func(name string, mode os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			if err := os.Chmod(filepath.Join(root, name), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	link := func(target, name string) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			file := filepath.Join(root, name)
			if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if err := os.Symlink(target, file); err != nil {
				t.Fatal(err)
			}
		}
	}
	const file = "plugins/a.so"
	tests := map[string]struct {
		change  []func(t *testing.T, root string)
		trusted func(uint32) bool
		want    string // part of the refusal, where ROOT is the test's directory; empty for none
	}{
		"a file of the process's user": {},
		"another user is the owner":    {trusted: noUser, want: "/ drwx"},
		"the group may write the file": {
			change: list(mode(file, 0o664)), want: "ROOT/plugins/a.so -rw-rw-r--",
		},
		"others may write the file": {
			change: list(mode(file, 0o646)), want: "ROOT/plugins/a.so -rw-r--rw-",
		},
		"the group may write the directory": {
			change: list(mode("plugins", 0o775)), want: "ROOT/plugins drwxrwxr-x",
		},
		"others may write the directory above": {
			change: list(mode("", 0o757)), want: "ROOT drwxr-xrwx",
		},
		"a directory above for all with the sticky bit": {
			change: list(mode("", 0o777|os.ModeSticky)),
		},
		"the plugin's directory for all with the sticky bit": {
			change: list(mode("plugins", 0o777|os.ModeSticky)), want: "ROOT/plugins dtrwxrwxrwx",
		},
		"the directory that a link leads to, for all with the sticky bit": {
			change: list(mode("target", 0o777|os.ModeSticky), link("../target/b.so", file)),
			want:   "ROOT/target dtrwxrwxrwx",
		},
		"a link to the directory of plugins, which the group may write": {
			change: list(mode("target", 0o775), link("../target", "open/dir"), link("../open/dir/b.so", file)),
			want:   "ROOT/target drwxrwxr-x",
		},
		"the sticky bit does not protect the file": {
			change: list(mode(file, 0o666|os.ModeSticky)), want: "ROOT/plugins/a.so ",
		},
		"a link to a good file": {
			change: list(link("../target/b.so", file)),
		},
		"a link to a file that others may write": {
			change: list(mode("target/b.so", 0o666), link("../target/b.so", file)),
			want:   "ROOT/target/b.so -rw-rw-rw-",
		},
		"a link to a directory that is open to all": {
			change: list(mode("target", 0o777), link("../target/b.so", file)),
			want:   "ROOT/target drwxrwxrwx",
		},
		"a link through a link in an open directory": {
			change: list(link("../target/b.so", "open/hop"), mode("open", 0o777), link("../open/hop", file)),
			want:   "ROOT/open drwxrwxrwx",
		},
		"a loop of links": {
			change: list(link("a.so", file)), want: "more than 40 symbolic links",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"plugins/a.so", "target/b.so", "open/c.so"} {
				if err := os.Mkdir(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
					t.Fatal(err)
				}
				writeFile(t, filepath.Join(root, name), "")
			}
			mode("plugins/a.so", 0o644)(t, root)
			mode("target/b.so", 0o644)(t, root)
			for _, change := range test.change {
				change(t, root)
			}
			trusted := test.trusted
			if trusted == nil {
				trusted = trustedOwner
			}

			err = requireTrusted(filepath.Join(root, file), trusted)
			want := strings.ReplaceAll(test.want, "ROOT", root)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("got %v, want a refusal with %q", err, want)
			}
		})
	}
}

func list[T any](all ...T) []T { return all }

// TestWritableDirectoryNeedsTheFlag loads the same file from a directory that others may write,
// with and without the flag.
func TestWritableDirectoryNeedsTheFlag(t *testing.T) {
	dir := t.TempDir()
	build(t, filepath.Join(dir, "good.so"), recipe{source: "device"})
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	loaded, rejected := LoadDir(testContext(t), dir, Devices())
	if len(loaded) != 0 || len(rejected) != 1 || !strings.Contains(rejected[0].Error(), "--"+AllowWritableFlag) {
		t.Errorf("without the flag: loaded %v, rejected %v", loaded, rejected)
	}
	if checked := checkAll(t, Checker{}, dir); len(checked) != 1 || checked[0] != rejected[0].Error() {
		t.Errorf("a check says %q, loading %q", checked, rejected)
	}
	if checked := checkAll(t, Checker{AllowWritable: true}, dir); len(checked) != 0 {
		t.Errorf("a check with the flag says %q", checked)
	}
	loaded, rejected = LoadDir(testContext(t), dir, Devices().AllowWritable(true))
	if len(loaded) != 1 || len(rejected) != 0 {
		t.Errorf("with the flag: loaded %v, rejected %v", loaded, rejected)
	}
}
