// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/sdk/utils"
)

// Loaded is a plugin that is ready for use.
type Loaded[T named] struct {
	// File is the absolute path of its file.
	File string
	// Name is the plugin's name by GetName, or the name of its file when that is empty.
	Name string
	// Plugin is the plugin, created and, for kinds with New, prepared.
	Plugin T
}

// LoadDir loads the *.so files of dir, except hidden ones, in the order of their names. From then
// on, logs of plugins through the SDK go to ctx's logger. LoadDir logs each outcome in one line;
// rejected has the errors of the omitted files for counting, which LoadDir has logged. A directory
// that does not exist is empty.
//
// LoadDir omits a file that users other than root and the process's own may change, unless the kind
// has AllowWritable.
//
// It returns early with the plugins loaded so far when ctx ends. Call it once per kind and process:
// an opened file stays open.
func LoadDir[T named](ctx context.Context, dir string, kind Kind[T]) (loaded []Loaded[T], rejected []error) {
	logger := klog.FromContext(ctx)
	logTo(logger)
	files, err := pluginFiles(dir)
	if errors.Is(err, fs.ErrNotExist) {
		logger.Info("There is no plugin directory", logkey.Directory, dir, logkey.Kind, kind.what)
		return nil, nil
	}
	if err != nil {
		err = fmt.Errorf("read plugin directory: %w", err)
		logger.Error(err, "No plugins can be loaded", logkey.Directory, dir, logkey.Kind, kind.what)
		return nil, []error{err}
	}

	var open []*candidate
	for _, file := range files {
		if ctx.Err() != nil {
			return loaded, append(rejected, ctx.Err())
		}
		l, err := load(ctx, file, kind, &open)
		if err != nil {
			err = withFile(file, err)
			logger.Error(err, "A plugin is left out", logkey.Kind, kind.what)
			rejected = append(rejected, err)
			continue
		}
		logger.Info("Loaded a plugin", logkey.Kind, kind.what, logkey.File, file, logkey.Plugin, l.Name, logkey.Build,
			open[len(open)-1].describe())
		loaded = append(loaded, l)
	}
	return loaded, rejected
}

// pluginFiles returns the absolute paths of dir's plugin files in the order of their names.
func pluginFiles(dir string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		if isPluginName(entry.Name()) {
			files = append(files, filepath.Join(dir, entry.Name()))
		}
	}
	return files, nil
}

// isPluginName reports whether the name of a file in a plugin directory is that of a plugin.
func isPluginName(name string) bool {
	return filepath.Ext(name) == ".so" && !strings.HasPrefix(name, ".")
}

// read is the first stage: it reads a file, and refuses one that others may change, unless that is
// allowed.
func read(file string, allowWritable bool) (*candidate, error) {
	if !allowWritable {
		if err := requireTrusted(file, trustedOwner); err != nil {
			return nil, err
		}
	}
	return inspect(file)
}

// tryAfter is the second stage, for a file of this kind to open after others. It returns the
// plugin's name.
func (c *candidate) tryAfter(ctx context.Context, t target, open []*candidate) (name string, err error) {
	for _, other := range open {
		if err := c.conflictsWith(other); err != nil {
			return "", err
		}
	}
	return try(ctx, c.file, t)
}

// load takes one file through the three stages. It adds the file to open when the runtime has
// opened it.
func load[T named](ctx context.Context, file string, kind Kind[T], open *[]*candidate) (Loaded[T], error) {
	c, err := read(file, kind.allowWritable)
	if err != nil {
		return Loaded[T]{}, err
	}
	if err := c.require(kind.target()); err != nil {
		return Loaded[T]{}, err
	}
	if _, err := c.tryAfter(ctx, kind.target(), *open); err != nil {
		return Loaded[T]{}, err
	}

	*open = append(*open, c)
	o, err := openIsolated(file, kind)
	if err != nil {
		return Loaded[T]{}, err
	}
	name := o.name
	if name == "" {
		name = filepath.Base(file)
	}
	return Loaded[T]{File: file, Name: name, Plugin: o.plugin}, nil
}

// logTo sends logs of plugins through the SDK to the logger. The SDK's variables belong to the
// process: the last call wins.
func logTo(logger klog.Logger) {
	logger = logger.WithName("plugin").WithCallDepth(1)
	utils.Logb = func(level int) bool { return logger.V(level).Enabled() }
	utils.Logf = func(level int, format string, args ...any) { logger.V(level).Info(fmt.Sprintf(format, args...)) }
	utils.Warningf = func(format string, args ...any) {
		logger.Info(fmt.Sprintf(format, args...), logkey.Severity, "warning")
	}
	utils.Errorf = func(format string, args ...any) { logger.Error(nil, fmt.Sprintf(format, args...)) }
}
