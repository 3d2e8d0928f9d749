// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/kubedevice/kubedevice/pkg/documents"
)

// Kubelet is how this node's kubelet was started.
type Kubelet struct {
	// Node is the node's name.
	Node string
	// HostnameOverride, Kubeconfig and RootDir are the kubelet's flags of these names.
	HostnameOverride, Kubeconfig, RootDir string
	// Endpoint is the container runtime's, as the kubelet calls it now.
	Endpoint string

	unit    string
	process map[string]string // the properties of its unit
	flags   map[string]string // of its process
	sources []source          // that say the endpoint
}

// source is a file that says which endpoint the kubelet calls, or is to say it.
type source struct {
	path   string
	format format
}

// embedded are the units of distributions whose kubelet is part of another program.
var embedded = []string{"k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"}

// findKubelet finds out how the kubelet was started, from its unit, its process and its files.
func (e *Enrolment) findKubelet(ctx context.Context) (Kubelet, error) {
	unit, err := e.unit(ctx, e.options.KubeletUnit)
	if err != nil {
		return Kubelet{}, err
	}
	if unit["LoadState"] != "loaded" {
		for _, name := range embedded {
			if other, err := e.unit(ctx, name); err == nil && other["LoadState"] == "loaded" {
				return Kubelet{}, fmt.Errorf("the kubelet is part of %s, which starts a runtime of its own: such a "+
					"node is set up by hand, see "+documents.URL+"deploy/install.md", name)
			}
		}
		return Kubelet{}, fmt.Errorf("systemd has no %s: name the kubelet's unit with --kubelet-unit",
			e.options.KubeletUnit)
	}
	if pid := unit["MainPID"]; pid == "" || pid == "0" {
		return Kubelet{}, fmt.Errorf("%s does not run, so nothing shows how it is started: start it first",
			e.options.KubeletUnit)
	}
	flags, err := e.kubeletFlags(unit)
	if err != nil {
		return Kubelet{}, err
	}
	k := Kubelet{
		HostnameOverride: flags["hostname-override"], Kubeconfig: flags["kubeconfig"],
		RootDir: cmp.Or(flags["root-dir"], "/var/lib/kubelet"), unit: e.options.KubeletUnit,
		process: unit, flags: flags,
	}
	if k.Kubeconfig == "" {
		return Kubelet{}, errors.New("the kubelet has no --kubeconfig: on a node without an API server nothing " +
			"schedules devices")
	}
	if k.Node, err = nodeutil.GetHostname(k.HostnameOverride); err != nil {
		return Kubelet{}, err
	}
	return k, e.findConfigured(&k)
}

// kubeletFlags returns the flags of the process of the kubelet's unit.
func (e *Enrolment) kubeletFlags(unit map[string]string) (map[string]string, error) {
	raw, err := os.ReadFile(e.options.Host.path("/proc/" + unit["MainPID"] + "/cmdline"))
	if err != nil {
		return nil, fmt.Errorf("arguments of the kubelet: %w", err)
	}
	return flagsOf(strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00")), nil
}

// findConfigured finds the endpoint that the kubelet calls, and the configuration files that say
// one.
func (e *Enrolment) findConfigured(k *Kubelet) error {
	paths, err := e.configFiles(k.flags)
	if err != nil {
		return err
	}
	for _, path := range paths {
		configured := source{path, asField}
		endpoint, err := e.endpointAt(configured)
		if err != nil {
			return err
		}
		if endpoint != "" {
			k.Endpoint = endpoint
			k.sources = append(k.sources, configured)
		}
	}
	k.Endpoint = cmp.Or(k.flags[endpointFlag], k.Endpoint, defaultUpstream)
	return nil
}

// findSources adds the files that must say an endpoint for the kubelet to call another, besides the
// configuration files that say one.
func (e *Enrolment) findSources(k *Kubelet) error {
	started, err := e.flagSources(k.process)
	if err != nil {
		return err
	}
	k.sources = append(k.sources, started...)
	switch flag := k.flags[endpointFlag]; {
	case flag != "" && len(started) == 0:
		return fmt.Errorf("the kubelet has --%s=%s, and none of the files of %s that may be changed says so: put it "+
			"into the kubelet's configuration file as %s, and restart it", endpointFlag, flag, k.unit, endpointField)
	case len(k.sources) == 0 && k.flags["config"] == "":
		return fmt.Errorf("nothing says which endpoint the kubelet calls, and it has no --config file that could: "+
			"give it one (the kubelet's default is %s)", defaultUpstream)
	case len(k.sources) == 0:
		k.sources = append(k.sources, source{k.flags["config"], asField})
	}
	// The kubelet does not read this file: kubeadm lays it over the configuration that it writes.
	if instance := filepath.Join(k.RootDir, "instance-config.yaml"); e.options.Host.exists(instance) {
		k.sources = append(k.sources, source{instance, asField})
	}
	return nil
}

// configFiles returns the kubelet's configuration files; later ones override earlier ones.
func (e *Enrolment) configFiles(flags map[string]string) ([]string, error) {
	var paths []string
	if file := flags["config"]; file != "" {
		paths = append(paths, file)
	}
	directory := flags["config-dir"]
	if directory == "" {
		return paths, nil
	}
	var dropIns []string
	err := filepath.WalkDir(e.options.Host.path(directory), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
			relative := strings.TrimPrefix(path, e.options.Host.path("/"))
			dropIns = append(dropIns, filepath.Join("/", relative))
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	slices.Sort(dropIns)
	return append(paths, dropIns...), nil
}

// flagSources returns the files of the kubelet's unit that have the flag. Files of a package are
// not among them: its next version would put them back.
func (e *Enrolment) flagSources(unit map[string]string) ([]source, error) {
	var paths []string
	for _, line := range strings.Split(unit["EnvironmentFiles"], "\n") {
		path, _, _ := strings.Cut(line, " (")
		paths = append(paths, path)
	}
	paths = append(append(paths, strings.Fields(unit["DropInPaths"])...), unit["FragmentPath"])
	var found []source
	for _, path := range paths {
		if path == "" || strings.HasPrefix(path, "/usr/") || strings.HasPrefix(path, "/lib/") {
			continue
		}
		started := source{path, asFlag}
		endpoint, err := e.endpointAt(started)
		if err != nil {
			return nil, err
		}
		if endpoint != "" {
			found = append(found, started)
		}
	}
	return found, nil
}

// endpointAt returns the endpoint that the file says; one that is not there says none.
func (e *Enrolment) endpointAt(s source) (string, error) {
	found, err := e.options.Host.read(s.path)
	if err != nil {
		return "", err
	}
	endpoint, err := s.format.endpointIn(found.Content)
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.path, err)
	}
	return endpoint, nil
}

// unit returns properties of a unit of systemd. One that systemd does not have is "not-found". What
// stands in several lines is joined by newlines.
func (e *Enrolment) unit(ctx context.Context, name string) (map[string]string, error) {
	output, err := e.options.Host.Machine.Run(ctx, "systemctl", "show", name,
		"--property=LoadState,ActiveState,MainPID,FragmentPath,DropInPaths,EnvironmentFiles")
	if err != nil {
		return nil, fmt.Errorf("query systemd about %s: %w", name, err)
	}
	properties := map[string]string{}
	for _, line := range strings.Split(output, "\n") {
		key, value, found := strings.Cut(line, "=")
		if before, again := properties[key]; again {
			value = before + "\n" + value
		}
		if found {
			properties[key] = value
		}
	}
	return properties, nil
}

// knownFlags are those of the kubelet's flags that matter here.
var knownFlags = []string{"config", "config-dir", endpointFlag, "hostname-override", "kubeconfig", "root-dir"}

// flagsOf returns the values of those flags in a process's arguments; the last of each counts.
func flagsOf(args []string) map[string]string {
	values := map[string]string{}
	for i, arg := range args {
		name, value, inside := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || !slices.Contains(knownFlags, name) {
			continue
		}
		if !inside && i+1 < len(args) {
			value = args[i+1]
		}
		values[name] = value
	}
	return values
}
