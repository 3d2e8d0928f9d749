// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sdk_test holds the SDK to the surface that plugins in the field were written against:
// every exported name, with its fields, tags and signature, is assigned to the type it was
// published with. What drifts does not compile.
package sdk_test

import (
	"net"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/kdlog"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/sdk/utils"
)

// A value of a struct type can be assigned to a named type only when fields, order and tags are the
// same.
func _(
	name string,
	list map[types.ResourceName]int64,
	location map[types.ResourceName]types.ResourceName,
	scorer map[types.ResourceName]int32,
	container struct {
		KubeRequests types.ResourceList     `json:"-"`
		Requests     types.ResourceList     `json:"requests,omitempty"`
		DevRequests  types.ResourceList     `json:"devrequests,omitempty"`
		AllocateFrom types.ResourceLocation `json:"allocatefrom,omitempty"`
		Scorer       types.ResourceScorer   `json:"scorer,omitempty"`
	},
	pod struct {
		Name              string                         `json:"podname,omitempty"`
		NodeName          string                         `json:"nodename,omitempty"`
		Requests          types.ResourceList             `json:"requests,omitempty"`
		InitContainers    map[string]types.ContainerInfo `json:"initcontainer,omitempty"`
		RunningContainers map[string]types.ContainerInfo `json:"runningcontainer,omitempty"`
	},
	node struct {
		Name        string               `json:"name,omitempty"`
		Capacity    types.ResourceList   `json:"capacity,omitempty"`
		Allocatable types.ResourceList   `json:"allocatable,omitempty"`
		Used        types.ResourceList   `json:"used,omitempty"`
		Scorer      types.ResourceScorer `json:"scorer,omitempty"`
		KubeCap     types.ResourceList   `json:"-"`
		KubeAlloc   types.ResourceList   `json:"-"`
	},
	mount struct {
		ContainerPath string
		HostPath      string
		Readonly      bool
	},
	allocation struct {
		Devices     []device.HostDevice
		Mounts      []device.HostMount
		Envs        map[string]string
		Annotations map[string]string
		CDIDevices  []string
		Links       []string
	},
	hostDevice struct{ HostPath, ContainerPath, Permissions string },
	hostMount struct {
		HostPath       string
		ContainerPath  string
		Readonly       bool
		Propagation    device.Propagation
		SELinuxRelabel bool
	},
	health struct {
		Device          string
		Healthy         bool
		Reason, Message string
		Since           time.Time
	},
) {
	var (
		_ types.ResourceName     = types.ResourceName(name)
		_ types.ResourceList     = list
		_ types.ResourceLocation = location
		_ types.ResourceScorer   = scorer
		_ types.ContainerInfo    = container
		_ types.PodInfo          = pod
		_ types.NodeInfo         = node
		_ device.Mount           = mount
		_ device.Allocation      = allocation
		_ device.HostDevice      = hostDevice
		_ device.HostMount       = hostMount
		_ device.Health          = health
	)
}

// The optional interfaces, too: a plugin that no longer implements one would be treated as if it
// never had.
func _(concurrent device.ConcurrentSafe, allocator device.Allocator, isolator device.Isolator,
	firewalled device.Firewalled, reporter device.HealthReporter, reshaper device.Reshaper,
	attributed device.Attributed, usage device.UsageReporter,
	knownConcurrent interface{ ConcurrentSafe() bool },
	knownAllocator interface {
		AllocateContainer(*types.PodInfo, *types.ContainerInfo) (*device.Allocation, error)
	},
	knownIsolator interface{ DenyEnvs() map[string]string },
	knownFirewalled interface{ Firewall() device.Firewall },
	knownReporter interface {
		DeviceHealth() ([]device.Health, error)
	},
	knownReshaper interface {
		SetHeld(devices []string, complete bool)
	},
	knownAttributed interface {
		DeviceAttributes() (map[string]device.Attributes, error)
	},
	knownUsage interface {
		DeviceUsage() (map[string]device.Usage, error)
	},
	attributes map[string]device.Attribute,
) {
	concurrent, knownConcurrent = knownConcurrent, concurrent
	allocator, knownAllocator = knownAllocator, allocator
	isolator, knownIsolator = knownIsolator, isolator
	firewalled, knownFirewalled = knownFirewalled, firewalled
	reporter, knownReporter = knownReporter, reporter
	reshaper, knownReshaper = knownReshaper, reshaper
	attributed, knownAttributed = knownAttributed, attributed
	usage, knownUsage = knownUsage, usage
	var (
		_ device.Attributes             = attributes
		_ func(string) device.Attribute = device.String
		_ func(int64) device.Attribute  = device.Int
		_ func(bool) device.Attribute   = device.Bool
		_ func(string) device.Attribute = device.Version
		_ func(int64) device.Reading    = device.Read
	)
}

// Interfaces are the same when each can be assigned to the other.
func _(
	d device.Device,
	s devicescheduler.DeviceScheduler,
	r devicescheduler.PredicateFailureReason,
	publishedDevice interface {
		New() error
		Start() error
		UpdateNodeInfo(*types.NodeInfo) error
		Allocate(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error)
		GetName() string
	},
	publishedScheduler interface {
		AddNode(nodeName string, nodeInfo *types.NodeInfo)
		RemoveNode(nodeName string)
		PodFitsDevice(
			nodeInfo *types.NodeInfo, podInfo *types.PodInfo, fillAllocateFrom bool,
		) (bool, []devicescheduler.PredicateFailureReason, float64)
		PodAllocate(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error
		TakePodResources(*types.NodeInfo, *types.PodInfo) error
		ReturnPodResources(*types.NodeInfo, *types.PodInfo) error
		GetName() string
		UsingGroupScheduler() bool
	},
	publishedReason interface {
		GetReason() string
		GetInfo() (name types.ResourceName, requested, used, capacity int64)
	},
) {
	d, publishedDevice = publishedDevice, d
	s, publishedScheduler = publishedScheduler, s
	r, publishedReason = publishedReason, r
}

var (
	_ func() *types.ContainerInfo                          = types.NewContainerInfo
	_ func(*types.ContainerInfo) *types.ContainerInfo      = types.FillContainerInfo
	_ func() *types.PodInfo                                = types.NewPodInfo
	_ func(*types.PodInfo, string) *types.ContainerInfo    = (*types.PodInfo).GetContainerInPod
	_ func() *types.NodeInfo                               = types.NewNodeInfo
	_ func(string) *types.NodeInfo                         = types.NewNodeInfoWithName
	_ func(*types.NodeInfo) *types.NodeInfo                = (*types.NodeInfo).Clone
	_ func(list types.ResourceList, key string, val int64) = types.AddGroupResource

	_ func(string) (device.Device, error) = device.CreateDeviceFromPlugin

	_ func(types.ResourceName) bool                                         = resource.IsGroupResourceName
	_ func(types.ResourceName) bool                                         = resource.PrecheckedResource
	_ func(types.ResourceName) bool                                         = resource.IsEnumResource
	_ func(types.ResourceList, string, int64)                               = resource.AddGroupResource
	_ devicescheduler.PredicateFailureReason                                = (*resource.InsufficientResourceError)(nil)
	_ error                                                                 = (*resource.InsufficientResourceError)(nil)
	_ func(a, b types.ResourceList, c, d string) (bool, types.ResourceList) = resource.TranslateResource

	_ func(
		name types.ResourceName, requested, used, capacity int64,
	) *resource.InsufficientResourceError = resource.NewInsufficientResourceError

	_ *func(int) bool                                = &utils.Logb
	_ *func(int, string, ...any)                     = &utils.Logf
	_ *func(string, ...any)                          = &utils.Warningf
	_ *func(string, ...any)                          = &utils.Errorf
	_ func(int, string, ...any)                      = utils.Log
	_ func(string, ...any)                           = utils.Warning
	_ func(string, ...any)                           = utils.Error
	_ func(int) bool                                 = utils.LogV
	_ func(any) []string                             = utils.SortedStringKeys
	_ func(any, []string, any)                       = utils.AssignMap
	_ func(any, []string) any                        = utils.GetMap
	_ func() ([]net.IP, error)                       = utils.LocalIPsWithoutLoopback
	_ func(a, b *types.ContainerInfo) bool           = utils.CompareContainer
	_ func(a, b map[string]types.ContainerInfo) bool = utils.CompareContainers
	_ func(a, b *types.PodInfo) bool                 = utils.ComparePod
	_ func(a, b *types.NodeInfo) bool                = utils.CompareNode
	_ func(a, b map[string]string) bool              = utils.CompareMapStringString

	_ func(kdlog.Level) kdlog.Verbose     = kdlog.V
	_ func(kdlog.Verbose, ...any)         = kdlog.Verbose.Info
	_ func(kdlog.Verbose, ...any)         = kdlog.Verbose.Infoln
	_ func(kdlog.Verbose, string, ...any) = kdlog.Verbose.Infof
	_ func(...any)                        = kdlog.Info
	_ func(...any)                        = kdlog.Infoln
	_ func(string, ...any)                = kdlog.Infof
	_ func(...any)                        = kdlog.Warning
	_ func(...any)                        = kdlog.Warningln
	_ func(string, ...any)                = kdlog.Warningf
	_ func(...any)                        = kdlog.Error
	_ func(...any)                        = kdlog.Errorln
	_ func(string, ...any)                = kdlog.Errorf
	_ func()                              = kdlog.InitLogs
	_ func()                              = kdlog.FlushLogs
)

func TestTheGroupPrefixIsWhatAnnotationsInTheFieldSay(t *testing.T) {
	if got, want := types.DeviceGroupPrefix, "resource/group"; got != want {
		t.Errorf("types.DeviceGroupPrefix = %q, want %q", got, want)
	}
}
