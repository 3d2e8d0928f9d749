// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// visibleCards are cards that an image could take by itself.
type visibleCards struct{ cards }

var _ device.Isolator = (*visibleCards)(nil)

func (v *visibleCards) DenyEnvs() map[string]string {
	return map[string]string{"VISIBLE_CARDS": "void"}
}

func (v *visibleCards) Allocate(
	_ *types.PodInfo,
	_ *types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	return nil, nil, map[string]string{"VISIBLE_CARDS": "0"}, nil
}

// greedyWidgets deny under the same name as visibleCards, and under one of their own.
type greedyWidgets struct{ widgets }

func (g *greedyWidgets) DenyEnvs() map[string]string {
	return map[string]string{"VISIBLE_CARDS": "none", "VISIBLE_WIDGETS": ""}
}

func TestVariablesThatPluginsDeclareAreNeutralised(t *testing.T) {
	all := map[string]string{"VISIBLE_CARDS": "void", "VISIBLE_WIDGETS": ""}
	for name, test := range map[string]struct {
		off        bool
		source     string
		known      pods.Pod
		container  string
		privileged bool
		given      []types.ResourceName // to main
		want       map[string]string
		outcome    Outcome
	}{
		"a pod without devices":                  {known: plain, want: all, outcome: Isolated},
		"also one that requests somebody else's": {known: other, want: all, outcome: Isolated},
		"an init container": {
			known: plain, container: "first", want: all, outcome: Isolated,
		},
		"a debug container": {
			known: plain, container: "debugger-x7k2p", want: all, outcome: Isolated,
		},
		"a container beside one that has devices": {
			known: requesting, container: "side", given: []types.ResourceName{card0}, want: all, outcome: Isolated,
		},
		"a container with a card, from widgets": {
			known: requesting, given: []types.ResourceName{card0},
			want: map[string]string{"VISIBLE_CARDS": "0", "VISIBLE_WIDGETS": ""}, outcome: Injected,
		},
		"a container with a widget, from cards": {
			known: plain, given: []types.ResourceName{widget0}, want: map[string]string{"VISIBLE_CARDS": "void"},
			outcome: Injected,
		},
		"not one with both": {
			known: both, given: []types.ResourceName{card0, widget0}, want: map[string]string{"VISIBLE_CARDS": "0"},
			outcome: Injected,
		},
		"not a privileged one, which sees them all": {known: plain, privileged: true, outcome: Passed},
		"not a static pod, which root wrote":        {source: "file", outcome: Passed},
		"not anybody where the firewall is off":     {off: true, known: plain, outcome: Passed},
		"nor then one with a card, beyond what it needs": {
			off: true, known: requesting, given: []types.ResourceName{card0},
			want: map[string]string{"VISIBLE_CARDS": "0"}, outcome: Injected,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixtureWith(t, &visibleCards{}, &greedyWidgets{})
			if !test.off {
				f.Firewall = f.wall
			}
			f.pods["u"] = test.known
			source, container := test.source, test.container
			if source == "" {
				source = "api"
			}
			if container == "" {
				container = "main"
			}
			var annotations map[string]string
			if test.given != nil {
				annotations = allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": test.given})
			}
			config, err := f.createAs(t, "u", source, annotations, &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: container},
				Envs:     []*runtimeapi.KeyValue{{Key: "VISIBLE_CARDS", Value: []byte("all")}},
				Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					Privileged: test.privileged,
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]string
			for i, env := range config.GetEnvs() {
				if i == 0 { // the pod's own; what stands later wins
					got = map[string]string{}
					continue
				}
				got[env.GetKey()] = string(env.GetValue())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("added (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]Outcome{test.outcome}, f.outcomes); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoContainerIsAdmittedUncheckedWhilePluginsAreLoaded(t *testing.T) {
	loading := make(chan struct{})
	f := newFixtureOf(t, plugins.Load(func(context.Context) ([]pluginload.Loaded[device.Device], []error) {
		<-loading
		return []pluginload.Loaded[device.Device]{{Name: "cards", Plugin: &visibleCards{}}}, nil
	}))
	f.pods["u"] = plain
	raw := createRequest(t, "u", "api", nil, &runtimeapi.ContainerConfig{})
	impatient, cancel := context.WithCancel(context.Background())
	cancel()

	if suffix, err := f.CreateContainer(impatient, raw); err != nil || len(suffix) > 0 {
		t.Errorf("without the firewall: %q, %v", suffix, err)
	}
	f.Firewall = f.wall
	if _, err := f.CreateContainer(impatient, raw); status.Code(err) != codes.Unavailable {
		t.Errorf("with the firewall: %v, want Unavailable", err)
	}
	if len(f.warnings) > 0 {
		t.Errorf("the pod, which has nothing to do with devices, got the event %q", f.warnings)
	}
	close(loading)
	if suffix, err := f.CreateContainer(context.Background(), raw); err != nil || len(suffix) == 0 {
		t.Errorf("when they are loaded: %q, %v", suffix, err)
	}
}

// gpus are GPUs of a vendor that the firewall knows, from a plugin that says nothing to it.
type gpus struct{ cards }

func (g *gpus) UpdateNodeInfo(info *types.NodeInfo) error {
	info.Capacity[card0], info.Allocatable[card0] = 1, 1
	info.KubeCap["nvidia.com/gpu"], info.KubeAlloc["nvidia.com/gpu"] = 1, 1
	return nil
}

func (g *gpus) Allocate(
	_ *types.PodInfo, _ *types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	return nil, []string{"/dev/nvidia0"}, map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-0"}, nil
}

func allowlist(t *testing.T, entries ...string) firewall.Allowlist {
	t.Helper()
	list, err := firewall.ParseAllowlist(slices.DeleteFunc(entries, func(entry string) bool { return entry == "" }))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// pod returns the plain pod with a service account, or none that is known.
func podOf(account string) pods.Pod {
	pod := plain
	pod.ServiceAccount = account
	return pod
}

// podThatSets returns the plain pod, which sets those environment variables.
func podThatSets(variables ...string) pods.Pod {
	pod := plain
	pod.Variables = map[string][]string{"main": variables}
	return pod
}

func TestAPodThatRequestsDevicesPastTheSchedulerGetsNone(t *testing.T) {
	every := []*runtimeapi.KeyValue{{Key: "NVIDIA_VISIBLE_DEVICES", Value: []byte("all")}}
	twice := []*runtimeapi.KeyValue{
		{Key: "NVIDIA_VISIBLE_DEVICES", Value: []byte("all")}, {Key: "NVIDIA_VISIBLE_DEVICES", Value: []byte("0,1")},
	}
	cdi := map[string]string{"cdi.k8s.io/x": "nvidia.com/gpu=all"}
	for name, test := range map[string]struct {
		pod         pods.Pod
		annotations map[string]string
		config      *runtimeapi.ContainerConfig
		withImage   bool
		allow       []string
		injections  []firewall.KubeletInjection // of the kubelet's plugins
		claimed     map[string]string           // drivers by CDI device
		unknown     error                       // why neither is known
		noVariables error                       // why no CDI device can set variables

		envs     string // that the container is started with
		last     string // the CDI device that sets it after everything else
		code     codes.Code
		says     string
		event    string
		attempts []string
		outcome  Outcome
	}{
		"a variable is overridden, and the pod gets an event": {
			pod: plain, config: &runtimeapi.ContainerConfig{Envs: every}, envs: "void", outcome: Isolated,
			event:    "NVIDIA_VISIBLE_DEVICES=all requests devices from the container runtime, and is not obeyed",
			attempts: []string{"nvidia.com env neutralised"},
		},
		"what the image requests, which is not seen here, is overridden in silence": {
			pod: plain, envs: "void", outcome: Isolated,
		},
		"the same where the image's variables are seen": {
			pod: podThatSets(), config: &runtimeapi.ContainerConfig{Envs: every}, withImage: true, envs: "void",
			outcome: Isolated,
		},
		"a variable of the pod gets an event among those of the image": {
			pod: podThatSets("NVIDIA_VISIBLE_DEVICES"), config: &runtimeapi.ContainerConfig{Envs: every},
			withImage: true, envs: "void", outcome: Isolated,
			event: "NVIDIA_VISIBLE_DEVICES=all requests", attempts: []string{"nvidia.com env neutralised"},
		},
		"so does one of which nobody knows whose it is": {
			pod: plain, config: &runtimeapi.ContainerConfig{Envs: every}, withImage: true, envs: "void",
			outcome: Isolated,
			event:   "NVIDIA_VISIBLE_DEVICES=all requests", attempts: []string{"nvidia.com env neutralised"},
		},
		"an annotation of the pod is refused, and says what to do": {
			pod: plain, annotations: cdi, code: codes.FailedPrecondition, outcome: Refused,
			says:     `the annotation cdi.k8s.io/x (nvidia.com/gpu=all) of the pod requests devices`,
			attempts: []string{"nvidia.com annotation refused"},
		},
		"a mount is refused": {
			pod: plain, config: &runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{
				{ContainerPath: "/var/run/nvidia-container-devices/all", HostPath: "/dev/null"},
			}},
			code: codes.FailedPrecondition, outcome: Refused, says: "--device-firewall-allow",
			attempts: []string{"nvidia.com mount refused"},
		},
		"a device that the kubelet got for a claim is refused": {
			pod: plain, config: &runtimeapi.ContainerConfig{CDIDevices: []*runtimeapi.CDIDevice{
				{Name: "k8s.gpu.nvidia.com/claim=0a-gpu-0"},
			}},
			code: codes.FailedPrecondition, outcome: Refused, says: "CDI device k8s.gpu.nvidia.com/claim=0a-gpu-0",
			attempts: []string{"nvidia.com cdi refused"},
		},
		"an exporter is let through by its service account": {
			pod: podOf("dcgm-exporter"), allow: []string{"default/dcgm-exporter"},
			annotations: cdi, config: &runtimeapi.ContainerConfig{Envs: every}, outcome: Passed,
			attempts: []string{"nvidia.com annotation allowed", "nvidia.com env allowed"},
		},
		"another pod of the same namespace is not": {
			pod: podOf("default"), allow: []string{"default/dcgm-exporter"}, envs: "void", outcome: Isolated,
		},
		"the same service account in another namespace is not": {
			pod: podOf("dcgm-exporter"), allow: []string{"gpu-operator/dcgm-exporter"}, envs: "void", outcome: Isolated,
		},
		"a namespace is let through as a whole": {
			pod: podOf(""), allow: []string{"default/*"}, config: &runtimeapi.ContainerConfig{Envs: every},
			outcome: Passed, attempts: []string{"nvidia.com env allowed"},
		},
		"as long as the service account is not known, it is tried again, and the pod gets no event": {
			pod: podOf(""), allow: []string{"default/dcgm-exporter"}, code: codes.Unavailable, outcome: Refused,
			says: "service account is not known",
		},
		"an annotation that only this program writes is refused, from whatever pod": {
			pod: plain, config: &runtimeapi.ContainerConfig{Annotations: map[string]string{grants.Annotation: "{}"}},
			allow: []string{"default/*"}, code: codes.FailedPrecondition, outcome: Refused, says: grants.Annotation,
		},
		"image and pod that set the variable under NRI are overridden after everything else": {
			pod: podThatSets("NVIDIA_VISIBLE_DEVICES"), config: &runtimeapi.ContainerConfig{Envs: twice},
			withImage: true, envs: "void", last: "kubedevice.io/variables=NVIDIA_VISIBLE_DEVICES=void",
			outcome: Isolated,
			event:   "NVIDIA_VISIBLE_DEVICES=0,1 requests", attempts: []string{"nvidia.com env neutralised"},
		},
		"so is an image that sets it twice, for a container with a GPU": {
			pod: podThatRequests("nvidia.com/gpu"), config: &runtimeapi.ContainerConfig{Envs: twice},
			annotations: allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}}),
			withImage:   true, envs: "GPU-0", last: "kubedevice.io/variables=NVIDIA_VISIBLE_DEVICES=GPU-0",
			outcome: Injected,
		},
		"where that cannot be, the container is refused": {
			pod: podThatSets(), config: &runtimeapi.ContainerConfig{Envs: twice}, withImage: true,
			noVariables: errors.New("no space left"), code: codes.FailedPrecondition, outcome: Refused,
			says: "NVIDIA_VISIBLE_DEVICES stands twice, in its image or in image and pod, and cannot be " +
				"overridden: no space",
		},
		"a limit of memory, of which no value is harmless, refuses a container with a GPU": {
			pod: podThatRequests("nvidia.com/gpu"), config: &runtimeapi.ContainerConfig{
				Envs: []*runtimeapi.KeyValue{{Key: "NVIDIA_GPU_MEMORY_LIMIT", Value: []byte("1")}},
			},
			annotations: allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}}),
			code:        codes.FailedPrecondition, outcome: Refused, says: "NVIDIA_GPU_MEMORY_LIMIT=1 decides",
			attempts: []string{"nvidia.com env refused"},
		},
		"a container that requests another resource of the vendor's is exempt from nothing": {
			pod: podThatRequests("nvidia.com/hostdev"), config: &runtimeapi.ContainerConfig{Envs: every}, envs: "void",
			injections: []firewall.KubeletInjection{{Resource: "nvidia.com/hostdev"}}, outcome: Isolated,
			event: "NVIDIA_VISIBLE_DEVICES=all requests", attempts: []string{"nvidia.com env neutralised"},
		},
		"but from what that resource's plugin gave": {
			pod: podThatRequests("nvidia.com/hostdev"), config: &runtimeapi.ContainerConfig{
				Envs:       []*runtimeapi.KeyValue{{Key: "NVIDIA_VISIBLE_DEVICES", Value: []byte("GPU-7")}},
				CDIDevices: []*runtimeapi.CDIDevice{{Name: "nvidia.com/hostdev=7"}},
			},
			injections: []firewall.KubeletInjection{{
				Resource: "nvidia.com/hostdev", Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-7"},
				CDIDevices: []string{"nvidia.com/hostdev=7"},
			}},
			envs: "GPU-7", outcome: Isolated,
		},
		"as long as that is not known, it is tried again": {
			pod: podThatRequests("nvidia.com/hostdev"), unknown: errors.New("no such file"), code: codes.Unavailable,
			outcome: Refused, says: "what the kubelet's device plugins gave container \"main\" is not known",
		},
		"a claim for what is not managed here passes": {
			pod: plain, config: &runtimeapi.ContainerConfig{CDIDevices: []*runtimeapi.CDIDevice{
				{Name: "k8s.compute-domain.nvidia.com/claim=0a"},
			}},
			claimed: map[string]string{"k8s.compute-domain.nvidia.com/claim=0a": "compute-domain.nvidia.com"},
			envs:    "void", outcome: Isolated,
		},
		"not while its driver is not known": {
			pod: plain, config: &runtimeapi.ContainerConfig{CDIDevices: []*runtimeapi.CDIDevice{
				{Name: "k8s.compute-domain.nvidia.com/claim=0a"},
			}},
			unknown: errors.New("no such file"), code: codes.Unavailable, outcome: Refused,
			says: "which driver has prepared the CDI devices",
		},
		"a container with a GPU has that one, and no others": {
			pod: podThatRequests("nvidia.com/gpu"), config: &runtimeapi.ContainerConfig{Envs: every},
			annotations: allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}}),
			envs:        "GPU-0", outcome: Injected,
		},
		"nor by an annotation, which a runtime prefers to the variable": {
			pod: podThatRequests("nvidia.com/gpu"),
			annotations: merged(cdi,
				allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {card0}})),
			code: codes.FailedPrecondition, outcome: Refused, says: "nvidia.com/gpu=all",
			attempts: []string{"nvidia.com annotation refused"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixtureWith(t, &gpus{})
			f.Firewall, f.Allowlist = f.wall, allowlist(t, test.allow...)
			f.pods["u"] = test.pod
			config := test.config
			if config == nil {
				config = &runtimeapi.ContainerConfig{}
			}
			config.Metadata = &runtimeapi.ContainerMetadata{Name: "main"}
			f.withImage, f.injections, f.claimed = test.withImage, test.injections, test.claimed
			f.unknown, f.variablesErr = test.unknown, test.noVariables
			got, err := f.createAs(t, "u", "api", test.annotations, config)
			if status.Code(err) != test.code || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Fatalf("%v, want %v: %s", err, test.code, test.says)
			}
			visible := ""
			for _, env := range got.GetEnvs() {
				if env.GetKey() == "NVIDIA_VISIBLE_DEVICES" {
					visible = string(env.GetValue())
				}
			}
			if visible != test.envs {
				t.Errorf("NVIDIA_VISIBLE_DEVICES=%s, want %s", visible, test.envs)
			}
			last := ""
			for _, device := range got.GetCDIDevices() {
				if strings.HasPrefix(device.GetName(), "kubedevice.io/") {
					last = device.GetName()
				}
			}
			if last != test.last {
				t.Errorf("set last by %q, want %q", last, test.last)
			}
			if events := strings.Join(f.ignored, "\n"); (events != "") != (test.event != "") ||
				!strings.Contains(events, test.event) {
				t.Errorf("the pod's events are %q, want %q", events, test.event)
			}
			if diff := cmp.Diff(test.attempts, f.attempts); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]Outcome{test.outcome}, f.outcomes); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if (test.code == codes.FailedPrecondition) != (len(f.warnings) > 0) {
				t.Errorf("warnings: %q", f.warnings)
			}
		})
	}
}

func merged(all ...map[string]string) map[string]string {
	sum := map[string]string{}
	for _, one := range all {
		maps.Copy(sum, one)
	}
	return sum
}

func TestAPodPassesUntouchedWhereThereIsNothingToGuard(t *testing.T) {
	f := newFixture(t, false) // a plugin file that could not be loaded, and the vendor's files are not there
	f.Firewall = f.wall
	f.Admission.Pods = nodePods{f.pods, pods.NewRegistry(0)}
	f.pods["u"] = plain
	env := &runtimeapi.KeyValue{Key: "NVIDIA_VISIBLE_DEVICES", Value: []byte("all")}
	raw := createRequest(t, "u", "api", map[string]string{"cdi.k8s.io/x": "nvidia.com/gpu=all"},
		&runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{env}})
	if suffix, err := f.CreateContainer(context.Background(), raw); err != nil || len(suffix) > 0 {
		t.Errorf("without devices: %q, %v", suffix, err)
	}
	f.files = map[string]bool{"/dev/nvidiactl": true}
	if _, err := f.CreateContainer(context.Background(), raw); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("with the driver's files, whoever was to know the variables: %v", err)
	}
	f.kubelets = map[types.ResourceName]bool{"nvidia.com/gpu": true}
	if suffix, err := f.CreateContainer(context.Background(), raw); err != nil || len(suffix) > 0 {
		t.Errorf("where the kubelet allocates them: %q, %v", suffix, err)
	}
}

func TestAnImageWhoseVolumeNamesADeviceIsRefusedByTheProxy(t *testing.T) {
	f := fixtureWith(t, &gpus{})
	f.Firewall = f.wall
	f.pods["u"] = plain
	for volume, want := range map[string]codes.Code{
		"/data": codes.OK, "/var/run/nvidia-container-devices/all": codes.FailedPrecondition,
	} {
		f.Images = imageOf{Volumes: []string{volume}}
		if _, err := f.create(t, "u", "main", "api", nil); status.Code(err) != want {
			t.Errorf("%s: %v", volume, err)
		}
	}
}

// gaudis are accelerators of a vendor whose runtime takes the first variable.
type gaudis struct{ cards }

func (g *gaudis) UpdateNodeInfo(info *types.NodeInfo) error {
	info.Capacity[card0], info.Allocatable[card0] = 1, 1
	info.KubeCap["habana.ai/gaudi"], info.KubeAlloc["habana.ai/gaudi"] = 1, 1
	return nil
}

func TestAnImageWhoseVariableComesFirstIsRefusedByTheProxyWhereTheFirstCounts(t *testing.T) {
	f := fixtureWith(t, &gaudis{})
	f.Firewall = f.wall
	f.pods["u"] = plain
	create := func() error {
		_, err := f.create(t, "u", "main", "api", nil)
		return err
	}
	if err := create(); err != nil {
		t.Errorf("an image without the variable: %v", err)
	}
	f.image = []*runtimeapi.KeyValue{{Key: "HABANA_VISIBLE_DEVICES", Value: []byte("none")}}
	if err := create(); err != nil {
		t.Errorf("an image that requests nothing: %v", err)
	}
	f.image = []*runtimeapi.KeyValue{{Key: "HABANA_VISIBLE_DEVICES_", Value: []byte("all")}}
	if err := create(); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "HABANA_VISIBLE_DEVICES_=all decides") {
		t.Errorf("an image that requests all: %v", err)
	}
	f.noImage = errors.New("the runtime does not answer")
	if err := create(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("an image of which nothing is known: %v", err)
	}
	f.withImage, f.noImage = true, nil
	config, err := f.createAs(t, "u", "api", nil, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Envs: f.image,
	})
	if err != nil || len(config.GetEnvs()) != 3 {
		t.Errorf("an image that requests all, under NRI: %v, %v", config, err)
	}
}
