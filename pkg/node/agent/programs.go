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

func (p *Programs) at(name string) string { return filepath.Join(p.Root, p.Directory, name) }

// The names of what is installed.
const (
	programName       = "kubecri"
	configurationName = "kubecri.yaml"
	certificatesName  = "seal-certificates.pem"
	pluginsName       = "devices"
)

// Install makes the directory what it is to be, and reports whether program, plugins or
// configuration have changed. Certificates are read again by kubecri itself.
func (p *Programs) Install() (changed bool, err error) {
	if !p.compared {
		if changed, err = p.installPrograms(); err != nil {
			return changed, err
		}
	}
	if p.Certificates != "" {
		if _, err := copyFile(p.Certificates, p.at(certificatesName), 0o644); err != nil {
			return changed, err
		}
	}
	configuration, err := os.ReadFile(p.Configuration)
	if err != nil {
		return changed, err
	}
	different, err := replace(bytes.NewReader(append(configuration, p.Add...)), p.at(configurationName), 0o644)
	p.compared = err == nil
	return changed || different, err
}

// installPrograms installs the program and the plugins, and removes those that are no more.
func (p *Programs) installPrograms() (changed bool, err error) {
	if err := os.MkdirAll(p.at(pluginsName), 0o755); err != nil {
		return false, err
	}
	var wanted []string
	for _, plugin := range p.Plugins {
		source, err := p.plugin(plugin)
		if err != nil {
			return changed, err
		}
		wanted = append(wanted, plugin+".so")
		different, err := copyFile(source, p.at(filepath.Join(pluginsName, plugin+".so")), 0o644)
		if err != nil {
			return changed, err
		}
		changed = changed || different
	}
	installed, err := os.ReadDir(p.at(pluginsName))
	if err != nil {
		return changed, err
	}
	for _, file := range installed {
		if slices.Contains(wanted, file.Name()) {
			continue
		}
		if err := os.Remove(p.at(filepath.Join(pluginsName, file.Name()))); err != nil {
			return changed, err
		}
		changed = true
	}
	different, err := copyFile(p.Program, p.at(programName), 0o755)
	return changed || different, err
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
	return os.RemoveAll(p.at(""))
}

// copyFile makes a file a copy of another, and reports whether it was none.
func copyFile(from, to string, mode fs.FileMode) (changed bool, err error) {
	source, err := os.Open(from)
	if err != nil {
		return false, err
	}
	defer source.Close()
	return replace(source, to, mode)
}

// replace gives a file that content in one step, and reports whether it had another. Its owner is
// the one of this process, as who may write it may have kubecri do what they like.
func replace(content io.ReadSeeker, to string, mode fs.FileMode) (changed bool, err error) {
	same, err := sameContent(content, to)
	if err != nil || same {
		return false, err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	file, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return false, err
	}
	_, err = io.Copy(file, content)
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), to)
	}
	if err != nil {
		return false, errors.Join(err, os.Remove(file.Name()))
	}
	return true, nil
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
	defer file.Close()
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
