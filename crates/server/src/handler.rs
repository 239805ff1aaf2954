//! The requests of MCP that this server has an answer to.

use std::sync::Arc;

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use supervisor::{CallFailure, CallResult, Client, ProgressSink};
use tools::Surface;

use crate::progress::Notify;
use crate::{Serving, listing};

/// One client's view of the server.
pub(crate) struct McpServer {
    client: Arc<Client>,
    surface: Surface,
    tools: Vec<Tool>,
    config: ServerConfig,
}

impl McpServer {
    pub(crate) fn new(client: Arc<Client>, serving: Serving) -> Self {
        let Serving { version, surface, dump_dirs: _ } = serving;
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let config = ServerConfig::new(capabilities)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
            .with_server_info(Implementation::new("windbg-mcp", version).with_title("Windows debugger"))
            .with_instructions(tools::instructions::instructions(&surface));
        Self { client, tools: listing::rows(&surface), surface, config }
    }
}

fn answer(result: CallResult) -> CallToolResult {
    let content = vec![ContentBlock::text(result.text)];
    let mut answer =
        if result.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    answer.structured_content = result.structured;
    answer
}

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
        // Handshake revisions do not know these fields, and strict clients of theirs reject them.
        if context.protocol_version().is_some_and(|version| !version.has_initialize()) {
            page.ttl_ms = Some(0);
            page.cache_scope = Some(CacheScope::Public);
        }
        Ok(page)
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
