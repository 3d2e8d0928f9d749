// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	sdkresource "github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// registrar serves Register. The sessions that it begins last until ctx is done.
type registrar struct {
	pluginapi.UnimplementedRegistrationServer
	manager *Manager
	ctx     context.Context
}

// Register is what a plugin calls. It returns after it has called the plugin back.
func (g *registrar) Register(ctx context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	err := g.register(ctx, request)
	if err != nil {
		klog.FromContext(g.ctx).Error(err, "A device plugin is not registered",
			logkey.Resource, request.GetResourceName(), logkey.Endpoint, request.GetEndpoint())
	}
	return &pluginapi.Empty{}, err
}

func (g *registrar) register(ctx context.Context, request *pluginapi.RegisterRequest) error {
	if err := checkVersions(request.GetVersion()); err != nil {
		return err
	}
	endpoint := request.GetEndpoint()
	if !filepath.IsLocal(endpoint) || slices.Contains([]string{".", socketName}, filepath.Clean(endpoint)) {
		return status.Errorf(codes.InvalidArgument,
			"endpoint %q is not the name of a plugin's socket in the directory of %s: register with the path of the "+
				"socket relative to that directory", endpoint, socketName)
	}
	socket := filepath.Join(g.manager.options.Dir, endpoint)
	_, err := g.manager.admit(ctx, g.ctx, types.ResourceName(request.GetResourceName()), socket)
	return err
}

// admit makes the plugin at the socket the one that serves the resource, or says why not. The
// plugin must answer before ctx is done; its session lasts until sessions is done.
func (m *Manager) admit(ctx, sessions context.Context, name types.ResourceName, socket string) (*session, error) {
	if !sdkresource.IsExtendedResource(name) {
		return nil, status.Errorf(codes.InvalidArgument, "the resource name %q is invalid: "+
			"it must be that of an extended resource, like vendor.example/device", name)
	}
	r, err := m.claim(name, socket)
	if err != nil {
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	}
	defer m.release(r)
	conflict := m.findConflict(ctx, r)
	r.registering.Lock()
	defer r.registering.Unlock()
	s, err := connect(ctx, name, socket)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	klog.FromContext(sessions).Info("A device plugin has registered", logkey.Resource, name, logkey.Endpoint, socket)
	m.begin(sessions, s, conflict)
	return s, nil
}

// checkVersions checks that the plugin speaks the only version of the API.
func checkVersions(versions ...string) error {
	if slices.Contains(versions, pluginapi.Version) {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "API version %q is not supported by kubecri: it speaks %s",
		strings.Join(versions, ", "), pluginapi.Version)
}
