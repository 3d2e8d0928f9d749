// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The plugin is a device plugin for the kubelet, or for who serves the kubelet's directory. Its
// devices are those of a file, which it reads again upon SIGHUP. It keeps a journal of the devices
// that it has allocated.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func main() {
	resource := flag.String("resource", "", "the resource to register")
	devices := flag.String("devices", "", "the file with the devices, a list of the API's as JSON")
	journal := flag.String("journal", "", "the file to which each allocation appends a line with the IDs")
	flag.Parse()
	if err := run(*resource, *devices, *journal); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(resource, devices, journal string) error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	list, err := readDevices(devices)
	if err != nil {
		return err
	}
	p, name := fakeplugin.New(list...), path.Base(resource)
	p.Env = strings.ToUpper(name) // GPU for vendor.example/gpu
	p.OnAllocate = func(ids []string) error { return appendLine(journal, strings.Join(ids, ",")) }
	ended, err := p.Serve(pluginapi.DevicePluginPath + name + ".sock")
	if err != nil {
		return err
	}
	err = fakeplugin.Register(context.Background(), pluginapi.KubeletSocket, name+".sock", types.ResourceName(resource))
	if err != nil {
		return err
	}
	for {
		select {
		case <-reload:
			list, err := readDevices(devices)
			if err != nil {
				return err
			}
			p.SetDevices(list...)
		case err := <-ended:
			return err
		}
	}
}

func readDevices(file string) (list []*pluginapi.Device, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return list, nil
}

func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, line)
	return err
}
