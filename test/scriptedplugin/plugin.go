// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scriptedplugin is a device plugin for the kubelet that does what the lines of a script
// say: how it registers, which devices it lists and when, and how it answers.
//
// A script has one command a line; see [Words] for how a line is read. Lines that begin with # are
// comments. $name stands for the name of the plugin, and $resource for that of its resource. Paths
// are relative to the directory in which plugins register.
//
//	devices ID[@NUMA[,NUMA]][!HEALTH]...   the list: NUMA nodes and health (Healthy) of each device
//	lists N LIST | LIST...                 sends the lists one after another, N times
//	options prestart | fails | prefers ID | takes DURATION
//	                                       requires PreStartContainer, fails to say its options,
//	                                       prefers a device, or takes so long to say them
//	node HOST CONTAINER PERMISSIONS        Allocate answers with a device node,
//	mount HOST CONTAINER [ro]              a mount,
//	env NAME=VALUE...                      variables,
//	annotation NAME=VALUE                  an annotation,
//	cdi NAME...                            CDI devices,
//	empty                                  nothing for the container,
//	another                                or for one more container, by the lines that follow
//	nothing                                Allocate answers for no container
//	fails TEXT                             Allocate and PreStartContainer fail
//	takes DURATION                         Allocate takes so long
//	info [NAME=VALUE...]                   it is one of the plugins registry, and describes itself:
//	                                       name, type, version, endpoint
//	serve [SOCKET]                         serves at the socket, $name.sock without one
//	register [NAME=VALUE...]               calls Register: resource, version, endpoint
//	start                                  serve and register
//	again                                  waits until the directory has a new kubelet, which removes
//	                                       all sockets first, and serves and registers again
//	notified                               waits for what the registry says to the plugin
//	stop                                   ends all calls, as a crash does
//	unlink                                 removes its socket
//	calls                                  says how often it was called
//
// Without a line that says what Allocate answers, a container gets the IDs of its devices in the
// variable DIFF.
package scriptedplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registrationapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
	"github.com/kubedevice/kubedevice/test/await"
)

const (
	// registerTimeout is how long Register may take.
	registerTimeout = 20 * time.Second
	// kubeletTimeout is how long a new kubelet may take to serve.
	kubeletTimeout = time.Minute
	// notifyTimeout is how long the registry may take to notify a plugin.
	notifyTimeout = 10 * time.Second
	// listInterval is the time between two lists, so that each is one of its own.
	listInterval = 20 * time.Millisecond
)

// Options configure a Plugin.
type Options struct {
	// Name is the name of the plugin, and Resource the one that it serves.
	Name, Resource string
	// Directory is the one in which plugins register, which has the kubelet's socket.
	Directory string
}

// Plugin is a scripted plugin. It belongs to one goroutine.
type Plugin struct {
	*fakeplugin.Plugin
	options Options
	socket  string
	answers []*pluginapi.ContainerAllocateResponse
}

// New returns a plugin that lists no device.
func New(options Options) *Plugin {
	p := &Plugin{Plugin: fakeplugin.New(), options: options, socket: options.Name + ".sock"}
	p.Env = "DIFF"
	return p
}

// Do carries out one line of a script, and returns what there is to say of it, on one line.
func (p *Plugin) Do(ctx context.Context, line string) (said string, err error) {
	line = strings.NewReplacer("$name", p.options.Name, "$resource", p.options.Resource).Replace(
		strings.TrimSpace(line))
	if line == "" || strings.HasPrefix(line, "#") {
		return "", nil
	}
	words, err := Words(line)
	if err != nil {
		return "", err
	}
	said, err = p.command(ctx, words[0], words[1:])
	if err != nil {
		return "", fmt.Errorf("%s: %w", words[0], err)
	}
	return said, nil
}

func (p *Plugin) command(ctx context.Context, name string, args []string) (said string, err error) {
	switch name {
	case "devices":
		list, err := devices(args)
		if err == nil {
			p.SetDevices(list...)
		}
		return "", err
	case "lists":
		return "", p.lists(args)
	case "options":
		return "", p.setOptions(args)
	case "fails":
		p.SetError(errors.New(strings.Join(args, " ")))
		return "", nil
	case "takes":
		return "", p.take(args)
	case "info":
		return "", p.describe(args)
	case "serve":
		return "", p.serve(args)
	case "register":
		return p.register(ctx, args)
	case "start":
		return p.start(ctx, args)
	case "again":
		return p.again(ctx)
	case "notified":
		return p.notified(), nil
	case "stop":
		p.Stop()
		return "", nil
	case "unlink":
		return "", os.Remove(p.path(p.socket))
	case "calls":
		return p.calls(), nil
	default:
		return "", p.answer(name, args)
	}
}

// path returns a path of a script.
func (p *Plugin) path(name string) string { return filepath.Join(p.options.Directory, name) }

// devices reads the devices of a list.
func devices(words []string) (list []*pluginapi.Device, err error) {
	for _, word := range words {
		word, health, hasHealth := strings.Cut(word, "!")
		id, numa, _ := strings.Cut(word, "@")
		var nodes []int64
		for node := range strings.SplitSeq(numa, ",") {
			if numa == "" {
				break
			}
			number, err := strconv.ParseInt(node, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("NUMA node of %q: %w", word, err)
			}
			nodes = append(nodes, number)
		}
		d := fakeplugin.Device(id, nodes...)
		if hasHealth {
			d.Health = health
		}
		list = append(list, d)
	}
	return list, nil
}

// lists sends several lists.
func (p *Plugin) lists(args []string) error {
	if len(args) == 0 {
		return errors.New("want how often, and lists")
	}
	times, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	var all [][]*pluginapi.Device
	for rest := args[1:]; ; {
		end := slices.Index(rest, "|")
		words := rest
		if end >= 0 {
			words = rest[:end]
		}
		list, err := devices(words)
		if err != nil {
			return err
		}
		all = append(all, list)
		if end < 0 {
			break
		}
		rest = rest[end+1:]
	}
	for range times {
		for _, list := range all {
			p.SetDevices(list...)
			time.Sleep(listInterval)
		}
	}
	return nil
}

// setOptions says what GetDevicePluginOptions answers.
func (p *Plugin) setOptions(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "prestart":
		p.PreStart = true
	case len(args) == 1 && args[0] == "fails":
		p.OptionsError = errors.New("no options")
	case len(args) == 2 && args[0] == "prefers":
		p.Preferred = args[1:]
	case len(args) == 2 && args[0] == "takes":
		duration, err := time.ParseDuration(args[1])
		p.OptionsDelay = duration
		return err
	default:
		return fmt.Errorf("no options %q", args)
	}
	return nil
}

// take has Allocate take a time.
func (p *Plugin) take(args []string) error {
	if len(args) != 1 {
		return errors.New("want a duration")
	}
	duration, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	p.OnAllocate = func([]string) error {
		time.Sleep(duration)
		return nil
	}
	return nil
}

// calls returns how often the plugin was called for a container, for how many devices, and how
// often PreStartContainer was called.
func (p *Plugin) calls() string {
	allocated, prepared := p.Calls()
	different := map[string]bool{}
	for _, ids := range allocated {
		for _, id := range ids {
			different[id] = true
		}
	}
	return fmt.Sprintf("%d calls, %d devices, prepared %d", len(allocated), len(different), len(prepared))
}

// serve serves the plugin at a socket.
func (p *Plugin) serve(args []string) error {
	if len(args) > 1 {
		return errors.New("want one socket")
	}
	if len(args) == 1 {
		p.socket = args[0]
	}
	if err := os.MkdirAll(filepath.Dir(p.path(p.socket)), 0o750); err != nil {
		return err
	}
	_, err := p.Serve(p.path(p.socket))
	return err
}

// kubeletSocket is where plugins register.
const kubeletSocket = "kubelet.sock"

// start serves the plugin and registers it. It is an error if the plugin is refused.
func (p *Plugin) start(ctx context.Context, args []string) (said string, err error) {
	if err := p.serve(args); err != nil {
		return "", err
	}
	if said, err = p.register(ctx, nil); err == nil && said != registered {
		err = errors.New(said)
	}
	return said, err
}

// again does what vendors' plugins do when the kubelet has started.
func (p *Plugin) again(ctx context.Context) (said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	if err := await.Until(ctx, "a new kubelet", func(context.Context) (bool, error) {
		_, own := os.Lstat(p.path(p.socket))
		_, kubelet := os.Lstat(p.path(kubeletSocket))
		return os.IsNotExist(own) && kubelet == nil, nil
	}); err != nil {
		return "", err
	}
	p.Stop()
	return p.start(ctx, nil)
}

// registered and refused are what the kubelet answers to Register, and what the registry notifies.
const registered, refused = "registered", "refused"

// register calls Register, and returns the answer.
func (p *Plugin) register(ctx context.Context, args []string) (said string, err error) {
	request := &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(p.socket), ResourceName: p.options.Resource,
	}
	for _, arg := range args {
		switch name, value, _ := strings.Cut(arg, "="); name {
		case "version":
			request.Version = value
		case "endpoint":
			request.Endpoint = value
		case "resource":
			request.ResourceName = value
		default:
			return "", fmt.Errorf("a registration has no %q", name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	if err := fakeplugin.Send(ctx, p.path(kubeletSocket), request); err != nil {
		return refused, nil
	}
	return registered, nil
}

// describe says what GetInfo answers.
func (p *Plugin) describe(args []string) error {
	p.Info = &registrationapi.PluginInfo{
		Type: registrationapi.DevicePlugin, Name: p.options.Resource, SupportedVersions: []string{pluginapi.Version},
	}
	for _, arg := range args {
		switch name, value, _ := strings.Cut(arg, "="); name {
		case "name":
			p.Info.Name = value
		case "type":
			p.Info.Type = value
		case "version":
			p.Info.SupportedVersions = []string{value}
		case "endpoint":
			p.Info.Endpoint = value
		default:
			return fmt.Errorf("a description has no %q", name)
		}
	}
	return nil
}

// notified waits until the registry has notified the plugin, and returns of what.
func (p *Plugin) notified() string {
	select {
	case status := <-p.Outcomes:
		if status.GetPluginRegistered() {
			return registered
		}
		return refused
	case <-time.After(notifyTimeout):
		return "not notified"
	}
}
