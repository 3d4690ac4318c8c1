//! Kinds that are not built in, and kinds that are not there.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::servers::{Server, object};

pub(crate) async fn installed_kind_is_served(server: &Server) {
    let admin = server.admin().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let definition = object(json!({
        "metadata": {"name": "tenants.test.gpudeck.dev"},
        "spec": {
            "group": "test.gpudeck.dev", "scope": "Cluster",
            "names": {"plural": "tenants", "singular": "tenant", "kind": "Tenant"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema":
                    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    }));
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .unwrap();

    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("test.gpudeck.dev", "v1", "Tenant"),
        "tenants",
    );
    let tenants: Api<DynamicObject> = Api::all_with(admin, &resource);
    super::eventually("the new kind is served", async || {
        tenants.list(&ListParams::default()).await.ok()
    })
    .await;
    let tenant = DynamicObject::new("a", &resource)
        .data(json!({"spec": {"gpus": 8}, "status": {"used": 1}}));
    let created = tenants
        .create(&PostParams::default(), &tenant)
        .await
        .unwrap();
    assert_eq!(
        created.data,
        json!({"spec": {"gpus": 8}}),
        "status is written apart"
    );
    let status = Patch::Merge(json!({"spec": {"gpus": 9}, "status": {"used": 2}}));
    let patched = tenants
        .patch_status("a", &PatchParams::default(), &status)
        .await
        .unwrap();
    assert_eq!(
        patched.data,
        json!({"spec": {"gpus": 8}, "status": {"used": 2}})
    );
}

pub(crate) async fn missing_kind_is_told_from_missing_path(server: &Server) {
    let client = server.admin().await;
    let ask = async |path: &str| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let Err(kube::Error::Api(status)) = client.request::<Value>(request).await else {
            panic!("{path} is served");
        };
        (status.code, status.message.trim_end().to_owned())
    };
    let of_kubernetes = "the server could not find the requested resource";
    for (path, message) in [
        ("/api/v1/gpus", of_kubernetes),
        ("/apis/scheduling.k8s.io/v1alpha1", of_kubernetes),
        ("/apis/scheduling.k8s.io/v1alpha1/workloads", of_kubernetes),
        ("/apis/kueue.test/v1beta2", "404 page not found"),
        ("/apis/kueue.test/v1beta2/workloads", "404 page not found"),
        ("/metrics/gpus", "404 page not found"),
    ] {
        assert_eq!(ask(path).await, (404, message.into()), "{path}");
    }
}
