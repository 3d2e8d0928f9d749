// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// content is the state of the tests.
type content struct {
	Values []string `json:"values"`
}

func newFile(t testing.TB) *File {
	t.Helper()
	return &File{Path: filepath.Join(t.TempDir(), "state"), Kind: "test"}
}

// valuesIn reads the values in the file.
func valuesIn(read func(func([]byte) error) error) (values string, err error) {
	var c content
	err = read(func(body []byte) error { return json.Unmarshal(body, &c) })
	return strings.Join(c.Values, " "), err
}

func mustSave(t testing.TB, f *File, values ...string) {
	t.Helper()
	if err := f.Save(content{values}); err != nil {
		t.Fatal(err)
	}
}

// expect fails the test unless the file has the values.
func expect(t testing.TB, f *File, want string) {
	t.Helper()
	if got, err := valuesIn(f.Read); got != want || err != nil {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

// rawOf returns the file that Save writes for the values.
func rawOf(t testing.TB, f *File, values ...string) []byte {
	t.Helper()
	header, body, err := encode(f.Kind, content{values})
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte(header), body...)
}

func create(t testing.TB, path string) *os.File {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func write(t testing.TB, path string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSavedContentIsRead(t *testing.T) {
	f := newFile(t)
	if _, err := valuesIn(f.Load); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrCorrupt) {
		t.Errorf("no file: %v, want fs.ErrNotExist", err)
	}
	for _, values := range []string{"one", "two values", strings.Repeat("many ", 5000), "few"} {
		mustSave(t, f, values)
		expect(t, f, values)
		if info, err := os.Stat(f.Path); err != nil || info.Mode().Perm() != 0o600 || info.Size()%block != 0 {
			t.Errorf("%v, %v; want mode 0600 and whole blocks", info, err)
		}
	}
}

func TestDoesNotWriteEqualContentAgain(t *testing.T) {
	f := newFile(t)
	mustSave(t, f, "one")
	if err := os.Remove(f.Path); err != nil {
		t.Fatal(err)
	}
	mustSave(t, f, "one")
	if _, err := os.Stat(f.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("written again: %v", err)
	}
	mustSave(t, f, "two")
	expect(t, f, "two")
}

func TestKilledWriterLeavesTheOldContent(t *testing.T) {
	f := newFile(t)
	mustSave(t, f, "old")
	spare := create(t, f.spare())
	for _, b := range rawOf(t, f, "new") {
		if _, err := spare.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
		expect(t, f, "old")
	}
	write(t, f.spare(), bytes.Repeat([]byte("x"), 3*block))
	mustSave(t, f, "new")
	expect(t, f, "new")
}

// After a partial write, a file system may have any mix of both contents.
func TestRejectsAMixOfTwoContents(t *testing.T) {
	f := newFile(t)
	mixed, after := rawOf(t, f, "old", "values"), rawOf(t, f, "new", "values")
	before := bytes.Clone(mixed)
	file := create(t, f.Path)
	for n := range after {
		if _, err := file.WriteAt(mixed, 0); err != nil {
			t.Fatal(err)
		}
		switch got, err := valuesIn(f.Read); {
		case bytes.Equal(mixed, before) && got == "old values" && err == nil:
		case bytes.Equal(mixed, after) && got == "new values" && err == nil:
		case !errors.Is(err, ErrCorrupt) || got != "":
			t.Fatalf("%d bytes of the new file and the rest of the old: read %q, %v", n, got, err)
		}
		if _, err := parse(f.Kind, after[:n]); err == nil {
			t.Fatalf("cut after %d bytes: read as valid", n)
		}
		mixed[n] = after[n]
	}
}

func TestDetectsEveryFlippedBit(t *testing.T) {
	raw := rawOf(t, newFile(t), "one", "two")
	for i := range raw {
		for bit := range 8 {
			raw[i] ^= 1 << bit
			if _, err := parse("test", raw); err == nil {
				t.Fatalf("bit %d of byte %d flipped: read as valid", bit, i)
			}
			raw[i] ^= 1 << bit
		}
	}
}

func TestLoadKeepsACorruptFileUnderAnotherName(t *testing.T) {
	withHeader := func(kind, version, body string) []byte {
		return fmt.Appendf(nil, "kubedevice-%s %s sha256:%x\n%s", kind, version, sha256.Sum256([]byte(body)), body)
	}
	for name, test := range map[string]struct {
		raw  []byte
		says string
	}{
		"empty":        {nil, `its first line is ""`},
		"bare JSON":    {[]byte(`{"values":["one"]}`), "its first line"},
		"another kind": {withHeader("numbers", "v1", `{}`), "its first line"},
		"a later version": {
			withHeader("test", "v2", `{}`), `the version "v2", which this kubecri does not know`,
		},
		"another checksum": {
			bytes.Replace(withHeader("test", "v1", `{}`), []byte("}"), []byte(" }"), 1), "its first line",
		},
		"invalid content": {withHeader("test", "v1", `{"values":1}`), "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFile(t)
			write(t, f.Path, test.raw)
			_, err := valuesIn(f.Read)
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), test.says) ||
				!strings.Contains(err.Error(), f.Path) {
				t.Errorf("read: %v, want it to say %q", err, test.says)
			}
			_, err = valuesIn(f.Load)
			kept, _ := filepath.Glob(f.Path + ".corrupt-*")
			if !errors.Is(err, ErrCorrupt) || len(kept) != 1 || !strings.Contains(err.Error(), kept[0]) {
				t.Fatalf("loaded: %v, kept: %v", err, kept)
			}
			if kept, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(kept, test.raw) {
				t.Errorf("kept %q, %v", kept, err)
			}
			mustSave(t, f, "new")
			expect(t, f, "new")
		})
	}
}

func TestReadsTheLegacyFileUntilItIsReplaced(t *testing.T) {
	f := newFile(t)
	f.Legacy = f.Path + ".json"
	write(t, f.Legacy, []byte(`{"values":["legacy"]}`))
	expect(t, f, "legacy")
	mustSave(t, f, "new")
	if _, err := os.Stat(f.Legacy); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the legacy file stays: %v", err)
	}
	write(t, f.Legacy, []byte(`{"values":["late"]}`)) // by a process of the earlier release
	expect(t, f, "new")

	if err := os.Remove(f.Path); err != nil {
		t.Fatal(err)
	}
	write(t, f.Legacy, []byte(`{"values":`))
	if _, err := valuesIn(f.Load); !errors.Is(err, ErrCorrupt) ||
		!strings.Contains(err.Error(), f.Legacy+".corrupt-") {
		t.Errorf("a legacy file that is corrupt: %v", err)
	}
	if _, err := valuesIn(f.Load); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after it was renamed: %v", err)
	}
}

func TestFullDiskLeavesTheOldContent(t *testing.T) {
	f := newFile(t)
	mustSave(t, f, "old")
	if err := os.Symlink("/dev/full", f.spare()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Save(content{[]string{"new"}}); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("saved: %v, want ENOSPC", err)
		}
		expect(t, f, "old")
	}
	if err := os.Remove(f.spare()); err != nil {
		t.Fatal(err)
	}
	mustSave(t, f, "new")
	expect(t, f, "new")
}

// The same with a real file system: Save writes a part of the content before the disk is full.
func TestSavesAgainAfterAFullDisk(t *testing.T) {
	directory := t.TempDir()
	if err := unix.Mount("tmpfs", directory, "tmpfs", 0, fmt.Sprintf("size=%d", 4*block)); err != nil {
		if os.Geteuid() == 0 {
			t.Fatalf("mount: %v", err)
		}
		t.Skipf("mounting a disk needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(directory, 0); err != nil {
			t.Error(err)
		}
	})
	f := &File{Path: filepath.Join(directory, "state"), Kind: "test"}
	mustSave(t, f, "old")
	if err := f.Save(content{[]string{strings.Repeat("x", 5*block)}}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("saved: %v, want ENOSPC", err)
	}
	expect(t, f, "old")
	for _, values := range []string{"new", "newer"} { // in both files
		mustSave(t, f, values)
		expect(t, f, values)
	}
}

// During a hand-over two processes have the file. A reader sees what one of them wrote.
func TestReaderSeesCompleteContentOfEitherWriter(t *testing.T) {
	f := newFile(t)
	mustSave(t, f, "first")
	var writers sync.WaitGroup
	for writer := range 2 {
		own := &File{Path: f.Path, Kind: f.Kind}
		writers.Go(func() {
			for i := range 30 {
				if err := own.Save(content{[]string{fmt.Sprint(writer), fmt.Sprint(i)}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		writers.Wait()
		close(done)
	}()
	for {
		// A reader that is slow sees the file change under it more often than it tries.
		if _, err := valuesIn(f.Read); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Error(err)
		}
		select {
		case <-done:
			if _, err := valuesIn(f.Read); err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}

func FuzzParse(f *testing.F) {
	file := newFile(f)
	f.Add(rawOf(f, file, "one"))
	f.Add([]byte("kubedevice-test v1 sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n"))
	f.Add([]byte("kubedevice-test v2 sha256:\n{}"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		body, err := parse(file.Kind, raw)
		if err == nil && headerOf(file.Kind, body)+string(body) != string(raw) {
			t.Errorf("%q is read as %q", raw, body)
		}
	})
}

// BenchmarkReplace compares the exchange of two files with a new file for each write.
func BenchmarkReplace(b *testing.B) {
	for _, size := range []int{block, 16 * block} {
		raw := make([]byte, size)
		b.Run(fmt.Sprintf("exchange/%d", size), func(b *testing.B) {
			f := newFile(b)
			for b.Loop() {
				if err := f.replace(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("new file/%d", size), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "state")
			for b.Loop() {
				if err := replaceWithNewFile(path, raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// replaceWithNewFile gives a file this content in one step, with a new file.
func replaceWithNewFile(path string, raw []byte) (err error) {
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, directory.Close()) }()
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := overwrite(path+".new", raw); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return directory.Sync()
}
