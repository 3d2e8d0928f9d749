// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Programs is what an agent puts on its machine: into a directory of its own, from which it goes as
// a whole.
type Programs struct {
	// Root stands before Directory: /proc/1/root in a container.
	Root string
	// Directory is the path on the machine.
	Directory string
	// Program is the program's file, here.
	Program string
	// PluginDirs have the plugins here, of which Plugins are the names without .so.
	PluginDirs, Plugins []string
	// Configuration is the configuration file here; Add is added to its end.
	Configuration string
	Add           string
	// Certificates is the file of the seals' certificates here. There need not be one.
	Certificates string

	compared bool // program and plugins, which do not change while this process lives
}

// Path returns the path, on the machine, of a file that is installed.
func (p *Programs) Path(name string) string { return filepath.Join(p.Directory, name) }

func (p *Programs) hostPath(name string) string { return filepath.Join(p.Root, p.Directory, name) }

// The names of what is installed.
const (
	programName       = "kubecri"
	configurationName = "kubecri.yaml"
	certificatesName  = "seal-certificates.pem"
	pluginsName       = "devices"
	// changedName is there while kubecri may run with something else than is installed.
	changedName = "changed"
)

// Install makes the directory what it is to be, and reports whether program, plugins or
// configuration have changed since Settle was called. Certificates are read again by kubecri
// itself.
func (p *Programs) Install() (changed bool, err error) {
	if !p.compared {
		if err := p.installPrograms(); err != nil {
			return false, err
		}
	}
	if p.Certificates != "" {
		if err := copyFile(p.Certificates, p.hostPath(certificatesName), 0o644, nil); err != nil {
			return false, err
		}
	}
	configuration, err := os.ReadFile(p.Configuration)
	if err != nil {
		return false, err
	}
	err = replace(bytes.NewReader(append(configuration, p.Add...)), p.hostPath(configurationName), 0o644, p.noteChange)
	if err != nil {
		return false, err
	}
	p.compared = true
	_, err = os.Lstat(p.hostPath(changedName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// noteChange notes that something changes, before it does: the process that is to restart kubecri
// may end first.
func (p *Programs) noteChange() error { return os.WriteFile(p.hostPath(changedName), nil, 0o600) }

// Settle says that kubecri runs with what is installed.
func (p *Programs) Settle() error {
	if err := os.Remove(p.hostPath(changedName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// installPrograms installs the program and the plugins, and removes those that are no more.
func (p *Programs) installPrograms() error {
	if err := os.MkdirAll(p.hostPath(pluginsName), 0o755); err != nil {
		return err
	}
	var wanted []string
	for _, plugin := range p.Plugins {
		source, err := p.plugin(plugin)
		if err != nil {
			return err
		}
		wanted = append(wanted, plugin+".so")
		err = copyFile(source, p.hostPath(filepath.Join(pluginsName, plugin+".so")), 0o644, p.noteChange)
		if err != nil {
			return err
		}
	}
	installed, err := os.ReadDir(p.hostPath(pluginsName))
	if err != nil {
		return err
	}
	for _, file := range installed {
		if slices.Contains(wanted, file.Name()) {
			continue
		}
		err := errors.Join(p.noteChange(), os.Remove(p.hostPath(filepath.Join(pluginsName, file.Name()))))
		if err != nil {
			return err
		}
	}
	return copyFile(p.Program, p.hostPath(programName), 0o755, p.noteChange)
}

// plugin returns the file of a plugin here.
func (p *Programs) plugin(name string) (string, error) {
	for _, directory := range p.PluginDirs {
		path := filepath.Join(directory, name+".so")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("no image has brought the device plugin %q, looked for in %q: correct the plugins "+
		"of the group, or add its image to pluginImages", name, p.PluginDirs)
}

// Clean removes the directory.
func (p *Programs) Clean() error {
	p.compared = false
	return os.RemoveAll(p.hostPath(""))
}

// copyFile makes a file a copy of another, as replace does.
func copyFile(from, to string, mode fs.FileMode, before func() error) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // opened for reading
	return replace(source, to, mode, before)
}

// replace gives a file that content in one step, if it has another, and calls before, if that is
// not nil, before it does. Its owner is the one of this process, as who may write it may have
// kubecri do what they like.
func replace(content io.ReadSeeker, to string, mode fs.FileMode, before func() error) error {
	same, err := sameContent(content, to)
	if err != nil || same {
		return err
	}
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// sameContent reports whether a file has that content.
func sameContent(content io.Reader, path string) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close() //nolint:errcheck // opened for reading
	const size = 1 << 16
	a, b := make([]byte, size), make([]byte, size)
	for {
		n, errA := io.ReadFull(content, a)
		m, errB := io.ReadFull(file, b)
		if !bytes.Equal(a[:n], b[:m]) {
			return false, nil
		}
		ended := func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
		switch {
		case ended(errA) && ended(errB):
			return true, nil
		case errA != nil && !ended(errA):
			return false, errA
		case errB != nil && !ended(errB):
			return false, errB
		}
	}
}
