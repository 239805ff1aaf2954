//! The requests of MCP that this server has an answer to.

use std::path::PathBuf;
use std::sync::Arc;

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams,
    CompleteResult, ContentBlock, CustomRequest, CustomResult, ErrorCode, GetPromptRequestParams,
    GetPromptResponse, Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use supervisor::{CallFailure, CallResult, Client, ProgressSink};
use tools::Surface;

use crate::progress::Notify;
use crate::{Serving, completion, lines, listing, prompts, resources};

/// One client's view of the server.
pub(crate) struct McpServer {
    client: Arc<Client>,
    surface: Surface,
    tools: Vec<Tool>,
    dump_dirs: Vec<PathBuf>,
    config: ServerConfig,
}

impl McpServer {
    pub(crate) fn new(client: Arc<Client>, serving: Serving) -> Self {
        let Serving { version, surface, dump_dirs } = serving;
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_resources()
            .enable_completions()
            .build();
        let config = ServerConfig::new(capabilities)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
            .with_server_info(Implementation::new("windbg-mcp", version).with_title("Windows debugger"))
            .with_instructions(tools::instructions::instructions(&surface));
        Self { client, tools: listing::rows(&surface), surface, dump_dirs, config }
    }
}

fn answer(result: CallResult) -> CallToolResult {
    let content = vec![ContentBlock::text(result.text)];
    let mut answer =
        if result.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    answer.structured_content = result.structured;
    answer
}

/// Handshake revisions do not know the caching fields, and strict clients of theirs reject them.
fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| !version.has_initialize())
}

/// Requests with params that must be there, and what those are.
const TAKES: &[(&str, &str)] = &[
    ("tools/call", "name is a string, arguments an object"),
    ("prompts/get", "name is a string, arguments an object of strings"),
    ("resources/read", "uri is a string"),
    ("completion/complete", "ref and argument are objects"),
];

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        self.config.clone()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut page = ListToolsResult::with_all_items(self.tools.clone());
        if is_stateless(&context) {
            page.ttl_ms = Some(0);
            page.cache_scope = Some(CacheScope::Public);
        }
        Ok(page)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut page = ListPromptsResult::with_all_items(prompts::rows(&self.surface));
        if is_stateless(&context) {
            page.ttl_ms = Some(0);
            page.cache_scope = Some(CacheScope::Public);
        }
        Ok(page)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompts::get(&self.client, &self.surface, request).map(Into::into)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut page = ListResourcesResult::with_all_items(resources::rows(&self.client));
        if is_stateless(&context) {
            page.ttl_ms = Some(0);
            page.cache_scope = Some(CacheScope::Private);
        }
        Ok(page)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut page = ListResourceTemplatesResult::with_all_items(resources::templates(&self.surface));
        if is_stateless(&context) {
            page.ttl_ms = Some(0);
            page.cache_scope = Some(CacheScope::Public);
        }
        Ok(page)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let mut result = resources::read(&self.client, &self.surface, &request.uri).await?;
        if is_stateless(&context) {
            result.ttl_ms = Some(0);
            result.cache_scope = Some(CacheScope::Private);
        }
        Ok(result.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let found = completion::complete(&self.client, &self.surface, &self.dump_dirs, request).await;
        Ok(CompleteResult::new(found))
    }

    /// What is no request this server knows, or one whose params are not what its method takes.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        if method == lines::UNREADABLE {
            let why = request.params.as_ref().and_then(|params| params["why"].as_str()).unwrap_or_default();
            return Err(ErrorData::parse_error(why.to_owned(), None));
        }
        let takes = TAKES.iter().find(|(name, _)| *name == method);
        Err(match takes {
            Some((_, params)) => ErrorData::invalid_params(format!("params of {method}: {params}"), None),
            None => {
                let method = self.client.redactor().text(&method).into_owned();
                ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None)
            }
        })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let progress = context
            .meta
            .get_progress_token()
            .map(|token| Arc::new(Notify { peer: context.peer.clone(), token }) as Arc<dyn ProgressSink>);
        let called =
            self.client.call(&request.name, request.arguments, &self.surface, progress, context.ct).await;
        match called {
            Ok(result) => Ok(answer(result).into()),
            Err(failure @ CallFailure::UnknownTool { .. }) => {
                Err(ErrorData::invalid_params(failure.to_string(), None))
            }
            Err(failure @ CallFailure::NoWorker(_)) => {
                Err(ErrorData::internal_error(failure.to_string(), None))
            }
        }
    }
}
