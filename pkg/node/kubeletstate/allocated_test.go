// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletstate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
)

func TestInjectionsAreReadFromTheKubeletsCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint")
	if injections, err := (Files{Checkpoint: path}).Injections("u", "main"); err != nil || len(injections) > 0 {
		t.Errorf("without a checkpoint: %v, %v", injections, err)
	}
	type entry struct {
		PodUID, ContainerName, ResourceName string
		DeviceIDs                           map[int][]string
		AllocResp                           []byte
	}
	answer := func(response *pluginapi.ContainerAllocateResponse) []byte {
		raw, err := proto.Marshal(response)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	full := answer(&pluginapi.ContainerAllocateResponse{
		Envs: map[string]string{"A": "1"}, Annotations: map[string]string{"cdi.k8s.io/x": "a.b/c=1"},
		Mounts:     []*pluginapi.Mount{{ContainerPath: "/in", HostPath: "/out"}},
		CdiDevices: []*pluginapi.CDIDevice{{Name: "a.b/c=2"}},
	})
	placeholder := answer(&pluginapi.ContainerAllocateResponse{
		Annotations: map[string]string{PlaceholderAnnotation: "true"},
	})
	raw, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": []entry{
		{"u", "main", "a.b/one", nil, full}, {"u", "main", "a.b/empty", nil, nil},
		{"u", "main", "a.b/ours", nil, placeholder}, {"u", "side", "a.b/two", nil, full},
		{"v", "main", "a.b/two", nil, full},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := (Files{Checkpoint: path}).Injections("u", "main")
	if diff := cmp.Diff([]firewall.KubeletInjection{
		{
			Resource: "a.b/one", Envs: map[string]string{"A": "1"},
			Annotations: map[string]string{"cdi.k8s.io/x": "a.b/c=1"}, Mounts: []string{"/in"},
			CDIDevices: []string{"a.b/c=2"},
		},
		{Resource: "a.b/empty"},
	}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if err := os.WriteFile(path, raw[:len(raw)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (Files{Checkpoint: path}).Injections("u", "main"); err == nil {
		t.Error("a checkpoint that cannot be read says nothing")
	}
}

func TestTheDriversOfClaimsAreThoseThatTheKubeletRemembersForThePod(t *testing.T) {
	path := filepath.Join(t.TempDir(), ClaimsName)
	if drivers, err := (Files{ResourceClaims: path}).Claims("u"); err != nil || len(drivers) > 0 {
		t.Errorf("without a file: %v, %v", drivers, err)
	}
	// As Kubernetes 1.34 to 1.37 write it.
	const data = `{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":[` +
		`{"ClaimUID":"1","ClaimName":"a","Namespace":"n","PodUIDs":{"u":{}},"DriverState":{` +
		`"gpu.nvidia.com":{"Devices":[{"PoolName":"p","DeviceName":"d","RequestNames":["r"],` +
		`"CDIDeviceIDs":["k8s.gpu.nvidia.com/claim=1","x.y/z=both"]}]},` +
		`"other.example":{"Devices":[{"CDIDeviceIDs":["x.y/z=both"]}]}}},` +
		`{"ClaimUID":"2","PodUIDs":{"v":{}},"DriverState":{"other.example":{"Devices":[{"CDIDeviceIDs":["x.y/z=2"]}]}}}]}`
	raw, err := json.Marshal(map[string]any{"Data": data, "Checksum": 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := (Files{ResourceClaims: path}).Claims("u")
	want := map[string]string{"k8s.gpu.nvidia.com/claim=1": "gpu.nvidia.com", "x.y/z=both": ""}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, broken := range []string{"{", `{"Data": "{"}`} {
		if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (Files{ResourceClaims: path}).Claims("u"); err == nil {
			t.Errorf("%s says nothing", broken)
		}
	}
}
